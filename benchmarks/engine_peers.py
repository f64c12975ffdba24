"""Other engines that score encoders, measured as benchmarks/peers.py does: one row, once, in a process of its own.

Run:  python benchmarks/engine_peers.py ROW WORKLOAD_DIR

The model is exported or compiled first, into WORKLOAD_DIR where it can be kept; neither that nor a first pass over all
texts is timed. "texts" rows score the reviews in batches sorted by length, "long" rows texts of 512 tokens; "latency"
rows score one review after the other.
"""

import json
import os
import statistics
import sys
import time

import numpy
import peers

LATENCY_TEXTS = 200


def padded(sequences):
    width = max(map(len, sequences))
    ids = numpy.full((len(sequences), width), peers.PADDING, numpy.int64)
    for row, sequence in zip(ids, sequences, strict=True):
        row[: len(sequence)] = sequence
    return {"input_ids": ids, "attention_mask": (ids != peers.PADDING).astype(numpy.int64)}


def measure_texts(run, file="test.parquet", longest=peers.LONGEST):
    """`run` takes a list of batches, each a list of token id lists."""
    sequences = peers.tokenize(peers.read_column(file), longest)
    ordered = sorted(sequences, key=len, reverse=True)
    batches = [ordered[first : first + peers.BATCH] for first in range(0, len(ordered), peers.BATCH)]
    run(batches)
    start = time.perf_counter()
    logits = run(batches)
    seconds = time.perf_counter() - start
    rows = sum(map(len, logits))
    return {"rate": rows / seconds, "tokens": sum(map(len, sequences)), "seconds": seconds}


def measure_long_texts(run):
    return measure_texts(run, "long.parquet", 512)


def measure_latency(run):
    """Texts a second at the median time of one text, which comes with the 99th percentile."""
    sequences = peers.tokenize(peers.read_column("test.parquet"))[:LATENCY_TEXTS]
    for sequence in sequences:
        run([[sequence]])
    seconds = []
    for sequence in sequences:
        start = time.perf_counter()
        run([[sequence]])
        seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds)
    p99 = statistics.quantiles(seconds, n=100)[98]
    tokens = sum(map(len, sequences))
    return {"rate": 1 / median, "tokens": tokens, "seconds": sum(seconds), "p50_ms": 1e3 * median, "p99_ms": 1e3 * p99}


def exported(name, make):
    path = peers.FOLDER / name
    if not path.exists():
        make(path)
    return str(path)


def onnx_graph():
    """What the exporter of torch gives, with ONNX Runtime's fusions for BERT."""
    import torch
    import transformers
    from onnxruntime.transformers import optimizer

    def export(path):
        model = transformers.RobertaForSequenceClassification.from_pretrained(
            peers.FOLDER / "roberta-base", attn_implementation="eager"
        ).eval()
        model.config.return_dict = False
        example = torch.ones(2, 9, dtype=torch.long)
        sizes = {0: "batch", 1: "length"}
        torch.onnx.export(
            model,
            (example, example),
            str(path),
            input_names=["input_ids", "attention_mask"],
            output_names=["logits"],
            dynamic_axes={"input_ids": sizes, "attention_mask": sizes, "logits": {0: "batch"}},
            opset_version=17,
            dynamo=False,
        )

    def fuse(path):
        graph = exported("roberta.onnx", export)
        fused = optimizer.optimize_model(graph, model_type="bert", num_heads=12, hidden_size=768, opt_level=1)
        fused.save_model_to_file(str(path))

    return exported("roberta-fused.onnx", fuse)


def onnx_graph_int8():
    from onnx import TensorProto
    from onnxruntime.quantization import QuantType, quantize_dynamic

    def quantize(path):
        extra = {"DefaultTensorType": TensorProto.FLOAT}
        quantize_dynamic(onnx_graph(), str(path), weight_type=QuantType.QInt8, per_channel=True, extra_options=extra)

    return exported("roberta-int8.onnx", quantize)


def onnx_runtime(graph):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = peers.THREADS
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    return lambda batches: [session.run(None, padded(batch))[0] for batch in batches]


def openvino_model():
    import openvino
    import torch

    def convert(path):
        example = torch.ones(2, 9, dtype=torch.long)
        inputs = {"input_ids": example, "attention_mask": example}
        model = openvino.convert_model(peers.load_model().eval(), example_input=inputs)
        model.reshape({"input_ids": [-1, -1], "attention_mask": [-1, -1]})
        openvino.save_model(model, str(path), compress_to_fp16=False)

    return exported("roberta-openvino.xml", convert)


def openvino_model_int8():
    """Static int8; calibrated on some of the very reviews that are scored, so only its speed is of interest."""
    import nncf
    import openvino

    def quantize(path):
        sequences = peers.tokenize(peers.read_column("test.parquet"))[::16]
        examples = nncf.Dataset([padded([sequence]) for sequence in sequences])
        model = openvino.Core().read_model(openvino_model())
        model = nncf.quantize(model, examples, model_type=nncf.ModelType.TRANSFORMER, subset_size=64)
        openvino.save_model(model, str(path), compress_to_fp16=False)

    return exported("roberta-openvino-int8.xml", quantize)


def openvino(model, precision):
    import openvino

    settings = {"INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY"}
    compiled = openvino.Core().compile_model(model, "CPU", settings | {"INFERENCE_NUM_THREADS": peers.THREADS})
    request = compiled.create_infer_request()
    return lambda batches: [request.infer(padded(batch), share_inputs=True)[0].copy() for batch in batches]


def zentorch(dtype):
    """AMD's backend of torch.compile."""
    import torch
    import zentorch  # noqa: F401 (registers the backend)

    model = torch.compile(peers.load_model().eval().to(dtype), backend="zentorch", dynamic=True)

    def forward(batch):
        inputs = {name: torch.from_numpy(array) for name, array in padded(batch).items()}
        with torch.no_grad():
            return model(**inputs).logits.float().numpy()

    return lambda batches: [forward(batch) for batch in batches]


def texts_onnx_runtime_int8():
    return measure_texts(onnx_runtime(onnx_graph_int8()))


def texts_openvino_fp32():
    return measure_texts(openvino(openvino_model(), "f32"))


def texts_openvino_bf16():
    return measure_texts(openvino(openvino_model(), "bf16"))


def texts_openvino_int8():
    return measure_texts(openvino(openvino_model_int8(), "bf16"))


def texts_zentorch_bf16():
    import torch

    return measure_texts(zentorch(torch.bfloat16))


def long_onnx_runtime_int8():
    return measure_long_texts(onnx_runtime(onnx_graph_int8()))


def long_openvino_fp32():
    return measure_long_texts(openvino(openvino_model(), "f32"))


def long_openvino_bf16():
    return measure_long_texts(openvino(openvino_model(), "bf16"))


def long_openvino_int8():
    return measure_long_texts(openvino(openvino_model_int8(), "bf16"))


def latency_onnx_runtime_fp32():
    return measure_latency(onnx_runtime(onnx_graph()))


def latency_onnx_runtime_int8():
    return measure_latency(onnx_runtime(onnx_graph_int8()))


def latency_openvino_fp32():
    return measure_latency(openvino(openvino_model(), "f32"))


def latency_openvino_bf16():
    return measure_latency(openvino(openvino_model(), "bf16"))


def latency_openvino_int8():
    return measure_latency(openvino(openvino_model_int8(), "bf16"))


ROWS = [texts_onnx_runtime_int8, texts_openvino_fp32, texts_openvino_bf16, texts_openvino_int8, texts_zentorch_bf16]
ROWS += [long_onnx_runtime_int8, long_openvino_fp32, long_openvino_bf16, long_openvino_int8]
ROWS += [latency_onnx_runtime_fp32, latency_onnx_runtime_int8]
ROWS += [latency_openvino_fp32, latency_openvino_bf16, latency_openvino_int8]


def main():
    rows = {row.__name__: row for row in ROWS}
    if len(sys.argv) != 3 or sys.argv[1] not in rows:
        sys.exit(__doc__)
    print(json.dumps(rows[sys.argv[1]]()), flush=True)
    os._exit(0)  # engines' threads can hang while the interpreter shuts down


if __name__ == "__main__":
    main()
