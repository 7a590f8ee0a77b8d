# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Raw English text to the words ELMo was trained on, as components of the Rust tokenizer.

ELMo was trained on words cut by the Moses tokenizer of the 1-billion-word benchmark: straight quotes, `don 't` and
`it 's`, `1,000.50` and `so-called` whole, other punctuation apart, a period kept only where it may end an
abbreviation. Words cut otherwise are words the model has not seen.
"""

from typing import Literal

from tokenizers import Regex, normalizers, pre_tokenizers

# Typographic signs that the training text writes in ASCII. One character to one character, so that the offsets of a
# word address the same characters before and after. Guillemets and the letter U+02BC stand in that text as they are.
TYPOGRAPHIC_SIGNS: dict[str, str] = {
    "`": "'",
    "\u00b4": "'",  # acute accent typed as an apostrophe
    "\u2018": "'",
    "\u2019": "'",
    "\u201a": "'",
    "\u201b": "'",
    "\u2032": "'",  # prime: feet, minutes
    "\u201c": '"',
    "\u201d": '"',
    "\u201e": '"',
    "\u201f": '"',
    "\u2033": '"',  # double prime: inches, seconds
    "\u2010": "-",
    "\u2011": "-",
    "\u2012": "-",
    "\u2013": "-",
    "\u2014": "-",
    "\u2015": "-",
    "\u2212": "-",  # minus
}

# An en dash joins (1990-2000), an em dash parts what stands left and right of it, with or without spaces. As both
# become "-", and "-" joins, the parting has to be done while the signs still differ: in the normalizer.
PARTING_DASHES = "\u2014\u2015"

# Words that keep their period before a capital, too. Months, states, "Inc", "Co", "Jr" and "etc" are not among them:
# the training text has `Jan . 5` and `Inc . ,`. Dotted ones (`U.S.`, `p.m.`, `e.g.`) need no list.
TITLES = "Mr Mrs Ms MR MRS MS Messrs Mme Mlle Dr Drs DR Prof Hon Rt Rev Sr St Msgr Bart Adv Ph"
OFFICES = "Sen Sens Rep Reps Gov Supt Insp Asst"
RANKS = "Gen Brig Col Maj Capt Lt Adj Sgt Sfc Cpl Pvt Pfc Adm Cmdr Comdr Ens Surg"
OTHERS = "Bros Corp Bldg Hosp Op Nos Nr v vs rev"
ABBREVIATIONS = f"{TITLES} {OFFICES} {RANKS} {OTHERS}".split()

# Words that keep their period before a number only: `No. 1`, but `He said no : No .`
NUMBERED = "No Art pp".split()

# Character classes, to be used inside brackets. A mark or joiner belongs to the letter before it in any script.
LETTER = r"\p{Alphabetic}\p{M}\u200C\u200D"
DIGIT = r"\p{Nd}"
IN_WORD = rf"{LETTER}{DIGIT}\-"
SPACE = r"\s\x00-\x1F"  # Moses drops the ASCII control characters

# Every loop below is possessive (`++`, `*+`): no character is tried twice by the same loop, so time is linear.
NUMERAL = rf"[{DIGIT}\p{{Nl}}]"
COMMA_IN_NUMBER = rf",(?<={NUMERAL},)(?={NUMERAL})"  # 1,000
MARK_IN_NUMBER = rf"'(?<={NUMERAL}')(?=[{LETTER}&&[^s]])"  # 2'x4 (but 1990 's)
PIECE = rf"[{IN_WORD}]++(?:(?:{COMMA_IN_NUMBER}|{MARK_IN_NUMBER})[{IN_WORD}]++)*+"  # a word up to a period

FINAL_PERIOD = rf"\.(?![{IN_WORD}.])"
LOWER_NEXT = rf"(?=[{SPACE}]++\p{{Lowercase}})"
NUMBER_NEXT = rf"(?=[{SPACE}]++[0-9])"
PERIOD_BEFORE_LOWER = rf"{FINAL_PERIOD}{LOWER_NEXT}"  # `Acme Inc. said`
DOTTED = rf"(?:\.{PIECE})++(?:{FINAL_PERIOD})?"  # the rest of `U.S.`, `www.example.com`; all of `.com`

# The look-ahead spares nearly all words the way through the list.
LONGEST = max(map(len, ABBREVIATIONS + NUMBERED))
ABBREVIATION = (
    rf"(?=(?>[A-Za-z]{{1,{LONGEST}}})\.)"
    rf"(?:(?:[A-Z]|{'|'.join(ABBREVIATIONS)}){FINAL_PERIOD}|(?:{'|'.join(NUMBERED)}){FINAL_PERIOD}{NUMBER_NEXT})"
)

# Digits and hyphens without any letter: unlike that of `U.S.`, the last period of `3.5.` is none of theirs.
FIGURES = rf"[{DIGIT}\-]++"
FIGURES_END = rf"(?![{LETTER}]|\.[{IN_WORD}]|{MARK_IN_NUMBER})"
NUMBER = rf"\.?+{FIGURES}(?:(?:\.|{COMMA_IN_NUMBER}){FIGURES})*+{FIGURES_END}(?:{PERIOD_BEFORE_LOWER})?"

# `don 't`, `1990 's`. A single letter between two apostrophes takes the second one with it: `rock 'n'roll`.
CONTRACTION = (
    rf"'(?:(?<=[{LETTER}]')(?=[{LETTER}])|(?<={NUMERAL}')(?=s))"
    rf"(?:[{LETTER}]'(?=[{LETTER}]))?"
)
WORD = rf"(?:{CONTRACTION})?{PIECE}(?:{DOTTED}|{PERIOD_BEFORE_LOWER})?|{DOTTED}"

DOTS = r"\.\.++"
# Anything else is a word by itself, together with what Unicode attaches to it: marks, joiners, skin tones.
SYMBOL = rf"[^{SPACE}][\p{{M}}\u200C\u200D\x{{1F3FB}}-\x{{1F3FF}}]*+"

MOSES_TOKEN: str = "|".join([ABBREVIATION, NUMBER, WORD, DOTS, SYMBOL])


def character_normalizer() -> normalizers.Normalizer:
    """Replaces the characters of `TYPOGRAPHIC_SIGNS`, and sets spaces around dashes that part words.

    Offsets keep addressing the original text: for a word at `start, end` there, the normalized word is
    `text[start:end].translate(str.maketrans(TYPOGRAPHIC_SIGNS))`.

    Returns:
        The normalizer to be set on the tokenizer whose pre-tokenizer is `word_splitter("moses")`.
    """
    signs: dict[str, str] = {}  # what is put in place -> the signs it is put in place of
    for sign, plain in TYPOGRAPHIC_SIGNS.items():
        replacement = f" {plain} " if sign in PARTING_DASHES else plain
        signs[replacement] = signs.get(replacement, "") + sign
    return normalizers.Sequence([normalizers.Replace(Regex(f"[{signs[plain]}]"), plain) for plain in signs])


def word_splitter(scheme: Literal["moses", "whitespace"]) -> pre_tokenizers.PreTokenizer:
    """Cuts text into words: `moses` for raw text, `whitespace` for text with spaces between all words already.

    Args:
        scheme: `"moses"` cuts as the training text of ELMo was cut and loses nothing but whitespace and ASCII control
            characters; it expects the characters that `character_normalizer` gives. `"whitespace"` cuts at Unicode
            whitespace only.

    Returns:
        A pre-tokenizer that `Tokenizer.save` can write.
    """
    if scheme == "moses":
        return pre_tokenizers.Split(Regex(MOSES_TOKEN), behavior="removed", invert=True)
    if scheme == "whitespace":
        return pre_tokenizers.WhitespaceSplit()
    raise ValueError(f"scheme is {scheme!r}; use 'moses' for raw text or 'whitespace' for text already cut by spaces.")
