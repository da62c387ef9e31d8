"""Whether a metric is better when it is lower, by its name. Pages and strategy tests ask here."""

FALLS = frozenset({"loss", "error", "mse", "mae", "rmse", "mape", "perplexity", "crossentropy"})
RISES = frozenset({"acc", "accuracy", "auc", "precision", "recall", "f1", "iou", "bleu", "r2"})


def falls(name: str) -> bool | None:
    """True where lower is better, False where higher is; None where nobody can tell."""
    words = set(name.lower().split("_"))
    if bool(words & FALLS) == bool(words & RISES):
        return None
    return bool(words & FALLS)
