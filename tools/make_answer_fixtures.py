"""Makes tests/fixtures/heads/answers.json: what question answering finds with the tests' models.

Run:  python tools/make_answer_fixtures.py      (needs torch and transformers)

`questions`: [question, context]. Per family and `flags` of strake `answers`: for every question a list of
[answer, score, start, end]. Transformers 5 has the models and not the pipeline: answers() below is what the pipeline of
Transformers 4.57 does, over the logits of the model. With transformers<5 it is also compared with that pipeline.
"""

import json
import math
import pathlib
import sys
import tempfile

import torch
import transformers

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import tiny_models  # noqa: E402

LONG = (
    "We love the book and the day was fine. Caf\u00e9 na\u00efve \u2014 \U0001f600 it was a sad, awful film; THE "
    "BOOK and The Book again, a\u0301 poor day. \u4f60\u597d great film 42? It was good and "
    "we hate it, and this day was bad. "
)
QUESTIONS = [
    ["a film?", "the film was good"],
    ["the day?", "\U0001f600\U0001f600 caf\u00e9: we love the great day!"],
    ["it?", "a"],
    ["good \u00e9?", LONG],
    ["BAD it?", LONG + LONG],
    ["a?", "  it was <mask> and [MASK] fine,\n\twe hate\u00a0it  "],
    [" was", "\u0130stanbul was great. \u0130STANBUL was poor " * 6],
    ["we?", "\u4f60\u597d\u4e16\u754c e\u0301te\u0301 happy"],
]
FLAGS = [
    {"max_seq_length": 60},
    {"max_seq_length": 24, "doc_stride": 8, "handle_impossible_answer": True},
    {"max_seq_length": 24, "doc_stride": 0, "top_k": 4, "max_answer_len": 4},
    {"max_seq_length": 32, "align_to_words": False, "handle_impossible_answer": True},
]
CLEAR = 2e-5  # between an answer and the next one, so that rounding does not change their order


def softmax(logits, among):
    largest = max(logits[i] for i in among)
    exponentials = {i: math.exp(logits[i] - largest) for i in among}
    total = sum(exponentials.values())
    return {i: value / total for i, value in exponentials.items()}


def windows(tokenizer, model, question, context, flags):
    """The encoding and the logits of begin and end of each window."""
    longest = flags["max_seq_length"]
    inputs = tokenizer(
        question,
        context,
        truncation="only_second",
        max_length=longest,
        stride=flags.get("doc_stride", min(longest // 2, 128)),
        return_overflowing_tokens=True,
    )
    for i, encoding in enumerate(inputs.encodings):
        tensors = {name: torch.tensor([inputs[name][i]]) for name in tokenizer.model_input_names}
        with torch.no_grad():
            output = model(**tensors)
        yield encoding, output.start_logits[0].tolist(), output.end_logits[0].tolist()


def chars_of_words(encoding):
    """Per token of the context the place of its word, as far as it is in this window."""
    places = {}
    for i, (text, word) in enumerate(zip(encoding.sequence_ids, encoding.word_ids, strict=True)):
        if text == 1:
            begin, end = encoding.offsets[i]
            places[word] = (min(begin, places.get(word, (begin, end))[0]), end)
    return {i: places[encoding.word_ids[i]] for i, text in enumerate(encoding.sequence_ids) if text == 1}


def best_spans(places, starts, ends, longest, most):
    spans = [
        (starts[begin] * ends[end], begin, end)
        for begin in places
        for end in range(begin, begin + longest)
        if end in places
    ]
    return sorted(spans, key=lambda span: (-span[0], *span[1:]))[:most]


def answers(tokenizer, model, question, context, flags):
    top_k = flags.get("top_k", 1)
    aligned = flags.get("align_to_words", True)
    found = {}
    empty_score = math.inf
    for encoding, start_logits, end_logits in windows(tokenizer, model, question, context, flags):
        places = chars_of_words(encoding)
        if not aligned:
            places = {i: encoding.offsets[i] for i in places}
        among = [0, *places]  # the first token is the one that stands for no answer
        starts, ends = softmax(start_logits, among), softmax(end_logits, among)
        empty_score = min(empty_score, starts[0] * ends[0])
        most = 2 * top_k + 10 if aligned else top_k
        for score, begin, end in best_spans(places, starts, ends, flags.get("max_answer_len", 15), most):
            first, last = places[begin][0], places[end][1]
            text = context[first:last]
            answer = found.setdefault(text.lower(), [text, 0.0, first, last])
            answer[1] += score
    ranked = list(found.values())
    if flags.get("handle_impossible_answer"):
        ranked.append(["", empty_score, 0, 0])
    ranked.sort(key=lambda answer: -answer[1])
    scores = [answer[1] for answer in ranked[: top_k + 1]]
    if any(better - worse < CLEAR for better, worse in zip(scores, scores[1:], strict=False)):
        raise SystemExit(f"two answers to {question!r} are almost equally good, {scores}: change the texts")
    return ranked[:top_k]


def compare_with_pipeline(model, tokenizer, rows, flags):
    pipeline = transformers.QuestionAnsweringPipeline(model, tokenizer)
    names = {"max_seq_length": "max_seq_len"}
    options = {names.get(name, name): value for name, value in flags.items()}
    for (question, context), expected in zip(QUESTIONS, rows, strict=True):
        found = pipeline(question=question, context=context, **options)
        found = found if isinstance(found, list) else [found]
        found = [answer for answer in found if answer["score"] > 0]  # where there are few, it gives impossible ones
        for (text, score, start, end), answer in zip(expected, found, strict=True):
            assert (text, start, end) == (answer["answer"], answer["start"], answer["end"])
            assert abs(score - answer["score"]) < 1e-5


def cases(folder):
    for family in tiny_models.ARCHITECTURES:
        source = tiny_models.make_reader(folder / family, family)
        model = transformers.AutoModelForQuestionAnswering.from_pretrained(source).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(source)
        for flags in FLAGS:
            rows = [answers(tokenizer, model, *row, flags) for row in QUESTIONS]
            if hasattr(transformers, "QuestionAnsweringPipeline"):
                compare_with_pipeline(model, tokenizer, rows, flags)
            print(family, flags, sum(row[0][0] == "" for row in rows), "without an answer")
            rounded = [[[text, float(f"{score:.8g}"), *place] for text, score, *place in row] for row in rows]
            yield {"family": family, "flags": flags, "answers": rounded}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        lines = [json.dumps(case) for case in cases(pathlib.Path(temporary))]
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    text = f'{{"made_with": {json.dumps(versions)},\n"questions": {json.dumps(QUESTIONS)},\n"cases": [\n'
    path = ROOT / "tests/fixtures/heads/answers.json"
    path.write_text(text + ",\n".join(lines) + "\n]}\n")
    print(f"{path.relative_to(ROOT)}: {len(lines)} cases")
