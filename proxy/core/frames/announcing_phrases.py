"""How an agent announces its next step in languages other than English. One line is a language, `_` is a space, `*` is
any word. Every phrase is common speech. Scripts without spaces have lists of their own."""

from __future__ import annotations

import re

OPENINGS = """
    gut okay ok super perfekt prima jetzt nun dann danach also zuerst zunächst anschließend und
    bon bien parfait super maintenant ensuite puis d'abord alors et
    bien perfecto vale ahora luego después primero entonces y
    bom ótimo perfeito certo agora depois primeiro então e
    bene perfetto ora adesso poi prima quindi e
"""
"""Words that stand in front of an announcement."""
ANNOUNCEMENTS = """
    ich_werde wir_werden werde_ich lass_mich lassen_sie_mich lass_uns lasst_uns lassen_sie_uns ich_muss_noch
    ich_möchte ich_will ich_schaue ich_sehe_mir ich_prüfe ich_überprüfe ich_starte ich_beginne ich_fange ich_lese
    ich_suche ich_baue ich_schreibe ich_passe ich_führe ich_teste ich_ändere ich_ergänze ich_füge ich_erweitere
    ich_aktualisiere ich_behebe ich_korrigiere ich_mache_jetzt ich_gehe ich_markiere ich_hake
    ich_schließe_diese ich_schließe_diesen ich_schließe_die_aufgabe ich_wende_mich
    schauen_wir sehen_wir_uns fangen_wir
    jetzt_*_ich nun_*_ich dann_*_ich danach_*_ich zuerst_*_ich zunächst_*_ich anschließend_*_ich als_nächstes
    als_nächster_schritt nächster_schritt bleibt_noch fehlt_noch
    je_vais nous_allons on_va laissez-moi laisse-moi je_dois_encore je_dois_maintenant il_faut_maintenant
    il_reste_à commençons voyons regardons vérifions passons je_commence je_regarde je_vérifie je_lance je_passe
    je_ferme_* je_marque je_termine_cette
    prochaine_étape
    voy_a vamos_a déjame déjeme permíteme permítame necesito_ver necesito_revisar tengo_que debo_ahora veamos
    empecemos comencemos revisemos a_continuación siguiente_paso el_siguiente_paso falta_por queda_por
    vou vamos deixe-me deixa_eu deixa-me preciso_ver preciso_verificar tenho_que irei vejamos a_seguir
    próximo_passo o_próximo_passo falta_ainda
    vado_a lasciami lasciatemi fammi vediamo devo_ancora devo_ora procedo procediamo verifichiamo passo_a passiamo
    sto_per prossimo_passo il_prossimo_passo
"""
"""Words with which an announcement begins."""
FUTURE = r"(?:j['\u2019]|je\s)?[^\W\dé]{2,}(?:[aei]ré|rai|rò|rei)"
"""A verb in the future of the first person, where its ending says so."""
ANNOUNCEMENTS_UNSPACED = """
    让我 我将 我要 我来 我会 我先 我需要 我现在 现在我 首先我 然后我 接着我 接下来 下一步 我们来 我们先 现在来 先来
    现在检查 现在运行 现在修改 现在更新 现在添加 现在修复 現在我 讓我 我將 我會 接下來 次に まず これから
"""
ENDINGS_UNSPACED = """
    ましょう てみます ていきます 確認します 修正します 実行します 調べます 追加します 更新します 始めます 進めます
    読みます 見ます 書きます 作成します 変更します 実装します 削除します 調査します 検索します
    直します テストします 하겠습니다 보겠습니다
"""
"""What an announcement ends with where verbs stand last."""


def any_phrase(phrases: str) -> str:
    """An expression for any of the phrases, longest first."""
    longest_first = sorted(set(phrases.split()), key=lambda phrase: (-len(phrase), phrase))
    escaped = (re.escape(phrase).replace("_", r"\s+").replace(r"\*", r"\w+") for phrase in longest_first)
    return "|".join(phrase.replace("'", "['\u2019]") for phrase in escaped)
