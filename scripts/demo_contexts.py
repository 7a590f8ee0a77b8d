# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentences with a word in two senses, for the demonstration; written for it.

Each sentence has the word once, in lower case. Both senses have `play` as a noun and as a verb, and both have `bank`
at the begin and at the end of a sentence, so that grammar alone does not tell them apart.
"""

CONTEXTS: dict[str, dict[str, list[str]]] = {
    "play": {
        "sport": [
            "The two teams play their last match of the season on Saturday.",
            "He was too badly injured to play in the second half of the game.",
            "Our goalkeeper will not play against the champions next week.",
            "She began to play football for the school team when she was ten.",
            "They play baseball in the park every Sunday afternoon.",
            "The referee stopped play after the ball hit a player on the head.",
            "Rain stopped play shortly after the first goal of the match.",
            "The shortstop made a great play on a hard ground ball.",
            "It was the best defensive play of the tournament, the coach said.",
            "The striker hopes to play for a club in the first division.",
        ],
        "theatre": [
            "The new play opened at the Royal Theatre on Friday night.",
            "Shakespeare wrote the play in the last years of his life.",
            "The critics praised the actors, but they did not like the play.",
            "She wrote her first play for the stage when she was twenty.",
            "In the third act of the play, the king meets his daughter again.",
            "The audience left the theatre before the play was over.",
            "He directed a play about the French Revolution in London.",
            "The actress was asked to play the queen in a new production.",
            "Two young actors play the lovers in this comedy.",
            "The scenes of the play are set in a small house in Dublin.",
        ],
    },
    "bank": {
        "river": [
            "She sat on the bank of the river and watched the boats go by.",
            "They tied the boat to a tree on the bank and waited.",
            "The left bank of the stream was covered with reeds and mud.",
            "We walked along the bank until we came to a wooden bridge.",
            "The cattle came down to the bank to drink the cold water.",
            "He swam across and climbed up the steep bank on the other side.",
            "The water rose until it ran over the bank.",
            "The bank was steep and muddy after three days of rain.",
            "The fishermen stood on the bank of the lake all morning.",
            "The village lies on the eastern bank of the Danube.",
        ],
        "money": [
            "The bank lent the company a large sum of money.",
            "She opened an account at the bank and paid in her wages.",
            "The bank raised its interest rates for the second time this year.",
            "He borrowed the money from a bank to buy the house.",
            "The largest bank in the country reported a loss on Tuesday.",
            "Their savings were lost when the bank failed.",
            "The manager of the bank refused to give them a loan.",
            "Two men with guns robbed the bank and fled with the cash.",
            "The central bank is expected to cut rates to help the economy.",
            "You can pay the bill by cheque or at any bank.",
        ],
    },
}

# The contexts whose neighbours are shown: the number of one for each sense.
SHOWN = 0
