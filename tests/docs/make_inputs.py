"""Makes in the current folder what the commands of docs/howto work on.

encoder/                     a small random BERT without a classifier, 64 positions
reader/                      a small random BERT that finds answers to questions
gpt2/                        a small random GPT-2, 64 positions
train.parquet, test.parquet  text, label and other columns
words.parquet, words.jsonl   lists of words, and of their tags
pairs.parquet                two texts, and a number that says how alike they are
questions.parquet            question, context, number, and answers as in SQuAD
answers.jsonl                the same of other texts, some without an answer
new.csv                      id and text, in Windows-1252
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import tiny_models


def main():
    tiny_models.make_model("encoder")
    tiny_models.make_reader("reader")
    tiny_models.make_language_model("gpt2", dropout=0.1)
    tiny_models.write_table("train.parquet", tiny_models.reviews(96))
    tiny_models.write_table("test.parquet", tiny_models.reviews(24, seed=2))
    tiny_models.write_table("words.parquet", tiny_models.tagged_reviews(96))
    tiny_models.write_table("words.jsonl", tiny_models.tagged_reviews(24, seed=2))
    pairs = [
        {"text": one["text"], "second": other["text"], "alike": float(one["label"] == other["label"])}
        for one, other in zip(tiny_models.reviews(24), tiny_models.reviews(24, seed=2), strict=True)
    ]
    tiny_models.write_table("pairs.parquet", pairs)
    questions = [
        {
            "number": row["number"],
            "question": "what was good?",
            "context": row["text"],
            "answers": {"text": row["text"].split()[:1], "answer_start": [0]},
        }
        for row in tiny_models.reviews(24, seed=3, longest=80)
    ]
    tiny_models.write_table("questions.parquet", questions)
    tiny_models.write_table("answers.jsonl", tiny_models.asked_reviews(48, longest=80))
    pathlib.Path("new.csv").write_text("id,text\n1,a good caf\u00e9\n2,the film was sad\n", encoding="cp1252")


if __name__ == "__main__":
    main()
