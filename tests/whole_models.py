"""Folders as Transformers reads them."""


def load_whole(auto_model, folder, unused=lambda _model: set()):
    """The model of a folder with exactly its weights, but for those missing that it does not use."""
    model, report = auto_model.from_pretrained(folder, output_loading_info=True)
    assert not set(report["missing_keys"]) - unused(model)
    for kind in ("unexpected_keys", "mismatched_keys"):
        assert not report[kind], f"{kind}: {report[kind]}"
    return model.eval()
