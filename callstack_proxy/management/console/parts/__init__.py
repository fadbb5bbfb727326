"""Parts of pages that are made from values alone: the picture of a context, the tree of frames, the balance of tokens
and money, the comparison of two bodies, and a call as a person reads it. Beside them, their scripts and styles."""
