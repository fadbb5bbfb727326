"""Phrases, in ten languages, by which people continue a task or start another one. One line is a language, `_` is a
space. Every phrase is common speech, none comes from a single conversation. Scripts without spaces have their own
lists, because their words have no boundaries to match."""
# ruff: noqa: RUF001  Cyrillic letters and full-width marks are what these words are written in

from __future__ import annotations

import re

NEW_TOPIC = """
    unrelated unrelatedly on_another_note now_for moving_on move_on switch_gears switching_gears switch_topics
    switching_topics change_the_topic change_of_topic changing_topics change_the_subject forget_about_that forget_that
    forget_it forget_about_it forget_this back_to_the back_to_my something_else something_different something_unrelated
    something_completely_different
    neue_aufgabe nächste_aufgabe andere_aufgabe neues_thema anderes_thema andere_frage neue_frage
    etwas_anderes was_anderes
    autre_chose nouvelle_tâche prochaine_tâche autre_question passons_à rien_à_voir
    otra_cosa nueva_tarea siguiente_tarea próxima_tarea otra_pregunta
    outra_coisa nova_tarefa próxima_tarefa outra_pergunta
    altra_cosa nuova_attività prossima_attività altra_domanda
    nieuwe_taak volgende_taak andere_vraag iets_anders
    другая_задача новая_задача следующая_задача другой_вопрос другая_тема теперь_другое
"""
NEW_TOPIC_UNSPACED = """
    下一个任务 新任务 新的任务 另一个任务 另一个问题 另外一个问题 换个话题 换个问题
    次のタスク 次の作業 新しいタスク 別件 話は変わ 話が変わ
"""
ACKNOWLEDGEMENTS = """
    yes yeah yep yup no nope nah ok okay k sure right alright all_right correct exactly perfect great good nice cool
    awesome excellent fine thanks thank_you thx cheers lgtm looks_good sounds_good well_done got_it i_see understood hm
    hmm hmmm ah ahh oh wow please so_much a_lot very_much
    ja nein doch genau danke super gut passt bitte oui non d'accord merci parfait sí si vale gracias perfecto
    sim não obrigado obrigada certo sì grazie va_bene nee prima dank_je да нет хорошо спасибо отлично
"""
ACKNOWLEDGEMENTS_UNSPACED = (
    "好的 好 是的 对的 不是 谢谢 可以 はい いいえ ありがとうございます ありがとう 了解です 了解 いいですね"
)
GREETINGS = """
    hi hello hey hiya greetings good_morning good_afternoon good_evening good_day dear
    hallo moin servus guten_tag guten_morgen guten_abend bonjour bonsoir salut hola buenos_días buenas_tardes
    olá oi bom_dia ciao buongiorno salve hoi goedemorgen привет здравствуйте добрый_день
"""
GREETINGS_UNSPACED = "你好 您好 こんにちは おはようございます 안녕하세요"
CONTINUATIONS = """
    and but or also so plus then still again wait dude omg omfg wtf ugh argh damn come_on actually instead rather sorry
    oops why because since although maybe though too continue proceed go_on go_ahead keep carry_on try retry do_it
    do_that do_so do_the_same undo revert stop same what_about how_about what_if in_addition additionally furthermore
    one_more just_one nit nits nitpick can_we_also can_you_also could_we_also could_you_also
    can_we_double_check can_you_double_check are_you are_we did_you have_you do_we is_it is_that is_this
    is_there does_it does_that does_this doesn't isn't it it's that that's this these those they you your option
    the_first the_second the_third the_last the_latter the_former both neither all_of none_of commit push run rerun
    merge rebase deploy i_mean i_meant
    und aber oder auch außerdem dann noch weiter mach warum wieso stattdessen es das du
    et mais ou aussi alors encore pourquoi continuez ça c'est tu vous
    y pero o también entonces por_qué continúa sigue eso esto mas também então por_quê continue isso
    ma anche allora perché continua en maar ook waarom ga_door
    и а но или также ещё еще почему продолжай это тоже
"""
CONTINUATIONS_UNSPACED = (
    "还 也 再 但 继续 请继续 为什么 然后 这 那 它 不对 それ これ でも また 続け なぜ どうして じゃあ あと"
)
BACK_REFERENCES = """
    it its that this those these them they above again instead too either as_well the_same previous previously current
    currently so_far by_now a_little a_bit a_lot slightly not_enough not_right not_quite should_be should_stay
    should_look should_say should_have shouldn't_be shouldn't_have should_not_be you_just you_did you_made you_wrote
    you_said you_added you_changed you_mentioned your_change your_changes your_fix your_plan your_proposal
    your_suggestion your_answer the_fix the_change the_changes the_plan the_result the_results the_output the_error
    the_test the_tests the_pr the_branch the_file the_review
    dies diese dieser dieses diesen diesem ihn nochmal wieder ça cela ceci eso esto isso isto questo quello
    это этот эту
"""
BACK_REFERENCES_UNSPACED = "这个 那个 这 那 它 それ これ その"
INSTRUCTIONS = """
    add implement create build write fix refactor investigate design set_up setup migrate port convert review explain
    document plan draft generate develop prepare research find analyze analyse debug optimize optimise introduce
    extract replace upgrade update configure install translate summarize summarise read look_at look_into figure_out
    work_on brainstorm book cancel
    füge implementiere erstelle bau baue schreib schreibe behebe repariere refaktoriere untersuche erkläre prüfe
    aktualisiere mache
    ajoute ajoutez ajouter implémente implémentez crée créez créer écris écrivez corrige corrigez explique expliquez
    vérifie vérifiez
    añade agrega implementa crea escribe arregla corrige explica revisa adicione implemente crie escreva corrija
    aggiungi scrivi correggi voeg maak schrijf repareer
    добавь создай напиши исправь реализуй объясни проверь
"""
INSTRUCTIONS_UNSPACED = "请添加 请实现 请创建 请编写 请写 请修复 添加 实现 创建 编写 写 修复 重构 解释 检查 帮我"
MORE_INSTRUCTIONS = """
    mend give remove delete drop rename move extend support change let make_sure teach allow split merge_the bump
    lösche entferne ändere verschiebe übersetze ersetze ergänze dokumentiere veröffentliche
    supprime supprimez renomme renommez déplace remplace remplacez traduis traduisez mets modifie modifiez documente
    elimina cambia quita añadid haz pon actualiza mueve traduce documenta reemplaza
    remova remove mude atualize traduza documente rimuovi cambia aggiorna sposta traduci verwijder удали измени обнови
"""
"""Further verbs of orders, which are as often said of what was just done."""
MORE_INSTRUCTIONS_UNSPACED = "删除 移除 更新 修改 增加 重命名 翻译 部署 给 把 将 请"
ORDER_ENDINGS_UNSPACED = (
    "してください てください て下さい でください お願いします してほしい てほしい 해주세요 해 주세요"
)
"""What an order ends with in languages whose verbs stand last."""
WANTS = """
    ich_brauche brauche_ich ich_möchte ich_will wir_brauchen brauchen_wir j'ai_besoin je_veux je_voudrais il_faut
    il_me_faut nous_avons_besoin necesito quiero hay_que necesitamos preciso quero precisamos ho_bisogno vorrei voglio
    мне_нужно мне_нужен нужно надо
"""
"""Words by which somebody says what they want."""
ADDITIONS = """
    nit nits nitpick wait oops sorry
    and but or also plus then still again actually instead rather too continue proceed go_on go_ahead keep carry_on
    try retry do_it do_that do_so do_the_same undo revert in_addition additionally furthermore one_more can_we_also
    can_you_also could_we_also could_you_also i_mean i_meant
    und aber oder auch außerdem dann noch weiter mach et mais ou aussi alors encore y pero o también entonces
    e mas também então ma anche allora en maar ook и а но или также ещё еще
"""
"""Words that open an order which adds to the work before it."""
ROUND_OFFS = "commit push run rerun merge rebase"
"""Verbs that open an order on the work before it, where little else is ordered."""
FURTHER_ORDERS = """
    and plus then can_we_also can_you_also could_we_also could_you_also
    und auch außerdem dann noch zusätzlich ferner weiterhin zudem et aussi ensuite puis de_plus en_plus par_ailleurs
    y también además luego asimismo por_último e também depois além_disso por_fim ainda
    inoltre anche poi infine en ook verder daarna bovendien и также ещё еще затем кроме_того
"""
"""Words that open one more order, if what follows is worded as one."""
FURTHER_ORDERS_UNSPACED = (
    "另外 此外 还有 最后 然后 顺便 そして あと それから さらに 最後に ついでに 加えて また 그리고 또한 추가로"
)
MORE_TO_DO = """
    also and_also and_then besides moreover in_addition additionally furthermore on_top_of_that
    one_more one_more_thing one_more_task one_more_request one_last_thing last_thing another_thing another_one
    while_you_are_at_it while_you're_at_it before_i_forget and_one_more and_one_more_thing and_another_thing
    one_other_thing one_small_thing one_final_thing one_more_point one_more_item two_more_things a_couple_more_things
    a_further_request another_request something_else_i_need besides_that apart_from_that separately lastly ps p.s
    noch_eins noch_etwas noch_was eins_noch noch_eine_sache noch_eine_bitte noch_ein_punkt noch_eine_kleinigkeit
    und_noch_etwas ach_ja_und_noch_was nebenbei wenn_du_schon_dabei_bist
    encore_une_chose autre_chose une_autre_chose une_dernière_chose une_chose_encore tant_que_tu_y_es au_fait
    una_cosa_más otra_cosa otra_cosa_más una_última_cosa un_favor_más ya_que_estás
    mais_uma_coisa outra_coisa uma_última_coisa já_agora
    un'altra_cosa un'ultima_cosa ancora_una_cosa altra_cosa già_che_ci_sei nog_iets nog_één_ding
    ещё_одно ещё_кое_что и_ещё
"""
"""Words that open one more order, whatever its verb."""
MORE_TO_DO_UNSPACED = "还有一件事 还有一点 还有一个要求 另外一件事 もう一つ もうひとつ もう一点 하나 더"
ONCE_MORE = """
    look glance check try time run pass go round attempt question read review shot iteration test
"""
"""What "one more" of is no order: more of what was just done, or not."""
NO_VERBS = """
    a an the this that these those it its he she they we i you my your our his her their there here
    is are was were be been does did has have had will would can could should may might must
    what why how who whom whose where when which if whether while because since for in on at to of from with without by
    about as no not nor only just maybe perhaps all some any each every more less another one two three nothing
    something everything nobody somebody yes ok okay so but or also too great good nice thanks
    das der die den dem es er sie ich du wir ihr man ein eine ist sind war hat haben wird kann nicht was wie warum wieso
    c'est ce cela ça il elle on je tu nous vous le la les un une est sont pas pourquoi comment
    eso esto el los las es está son no por qué cómo isso isto o os não questo quello è sono non perché это он она не
"""
"""Words with which no order begins."""
POINTING_WORDS = """
    it its that this these those them again instead too either as_well the_same previous all_of both neither
    the_first the_second the_third the_last the_latter the_former
    dies diese dieser dieses diesen diesem ihn nochmal wieder ça cela ceci eso esto isso isto questo quello
    это этот эту auch aussi también anche também ook тоже также
"""
"""Words that point at what was said or done before, whatever stands beside them."""
STOP_WORDS = """
    the and for are but not you all any can had her was one our out has him his how its may now see who did let use that
    with have this will your from they been were into than then them when what which a an in on of to is be as at by or
    if so do we i it me my us no there here also should would could please want need like make just some more other only
    get got new add fix write create implement update change test tests testing unit docs doc comment comments commit
    usage readme changelog branch pr code file files simple
    der die das und ist ein eine für mit nicht auf zu den von im le la les des un une et est pour dans avec sur
    el los las una de en y que por con para da do os as um uma na no и в не на с для по
"""
"""Words without a topic: function words, words of any order, and words of any work on code."""


def any_phrase_pattern(spaced: str, unspaced: str = "") -> str:
    """An expression for any phrase of the lists, longest first."""
    whole = "|".join(_phrase_pattern(phrase) for phrase in _longest_first(spaced))
    alternatives = "|".join(map(re.escape, _longest_first(unspaced)))
    return rf"(?:(?<!\w)(?:{whole})(?!\w)" + (f"|{alternatives})" if alternatives else ")")


def _longest_first(phrases: str) -> list[str]:
    return sorted(set(phrases.split()), key=lambda phrase: (-len(phrase), phrase))


def _phrase_pattern(phrase: str) -> str:
    """A space matches any white space, an apostrophe also a curly one."""
    return re.escape(phrase).replace("_", r"\s+").replace("'", "['’]")
