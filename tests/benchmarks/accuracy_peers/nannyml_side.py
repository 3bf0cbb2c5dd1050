"""Runs in NannyML's environment: its CBPE with everything at its default, on windows one after another."""

import sys
import warnings

import nannyml
import numpy as np
import pandas


def table(probabilities):
    """A frame of probabilities and predictions."""
    frame = pandas.DataFrame({f"p{number}": probabilities[:, number] for number in range(probabilities.shape[1])})
    frame["predicted"] = probabilities.argmax(axis=1)
    return frame


def main(source, goal):
    """Estimates of the stored windows into the stored goal."""
    warnings.simplefilter("ignore")
    with np.load(source) as found:
        stored = dict(found)
    classes = stored["reference"].shape[1]
    reference = table(stored["reference"])
    reference["truth"] = stored["labels"].astype(int)
    present = sorted(set(reference["truth"]) | set(reference["predicted"]))
    kind = "classification_binary" if classes == 2 else "classification_multiclass"
    columns = "p1" if classes == 2 else {number: f"p{number}" for number in present}
    shown = table(stored["shown"])
    if classes > 2:
        # it refuses classes that the reference has not; the most likely of those that it has is predicted instead
        shown["predicted"] = np.array(present)[stored["shown"][:, present].argmax(axis=1)]
    estimator = nannyml.CBPE(
        problem_type=kind,
        y_pred_proba=columns,
        y_pred="predicted",
        y_true="truth",
        metrics=["accuracy"],
        chunk_size=int(stored["window"]),
    )
    estimator.fit(reference)
    rows = estimator.estimate(shown).filter(period="analysis").to_df()["accuracy"]
    names = ["value", "lower_confidence_boundary", "upper_confidence_boundary"]
    np.savez(goal, estimates=rows[names].to_numpy(dtype=float))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
