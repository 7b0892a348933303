"""Fitted models and predictions as a JSON document; α in seconds, β in seconds a byte."""

from __future__ import annotations

from distdemo.bench.fitting import ASSUMPTIONS, Bend, Fit, FitReport, FittedSeries, Link, Prediction
from distdemo.bench.view_compare_document import key_entry
from distdemo.view.document import Json, envelope


def fit_document(report: FitReport) -> dict[str, Json]:
    """Every fit with its residuals, and every prediction with what it assumes."""
    predictions = [_prediction(each) for each in report.predictions]
    return envelope(
        "bench fit",
        ok=True,
        files=list(report.paths),
        against=list(report.against),
        fits=[_series(series) for series in report.series],
        predictions=predictions,
        assumptions=list(ASSUMPTIONS) if predictions else [],
        notes=list(report.notes),
        versions=report.versions,
    )


def _series(series: FittedSeries) -> dict[str, Json]:
    entry = key_entry(series.key) | {"op": series.op, "world_sizes": series.worlds}
    del entry["group_size"], entry["root"]  # the fit holds for all of them
    return entry | {
        "chosen": series.chosen,
        "chosen_because": series.why,
        "told_apart": series.told_apart,
        "algorithms": [_fit(fit) for fit in series.fits],
        "points": [
            {"group_size": point.n, "bytes": point.size, "seconds": point.seconds}
            for point in series.points
        ],
    }


def _fit(fit: Fit) -> dict[str, Json]:
    return {
        "algorithm": fit.algorithm,
        "formula": fit.formula,
        "source": fit.source,
        **_link(fit.link),
        "alpha_interval_seconds": fit.alpha_interval,
        "beta_interval_seconds_per_byte": fit.beta_interval,
        "median_relative_error": fit.median_error,
        "max_relative_error": fit.max_error,
        "fits": not fit.misfit,
        "misfit": fit.misfit or None,
        "bend": None if fit.bend is None else _bend(fit.bend),
        "relative_residuals": fit.residuals,
    }


def _bend(bend: Bend) -> dict[str, Json]:
    return {
        "bytes": bend.size,
        "below": _link(bend.small),
        "from_there": _link(bend.large),
        "median_relative_error": bend.error,
    }


def _link(link: Link) -> dict[str, Json]:
    return {
        "alpha_seconds": link.alpha,
        "beta_seconds_per_byte": link.beta,
        "bandwidth_bytes_per_second": 1 / link.beta if link.beta > 0 else None,
    }


def _prediction(prediction: Prediction) -> dict[str, Json]:
    entry = key_entry(prediction.key) | {"group_size": prediction.n, "op": prediction.op}
    return entry | {
        "prediction": True,
        "from_algorithm": prediction.source,
        "model_fits": not prediction.misfit,
        **_link(prediction.link),
        "rows": [
            {
                "bytes": row.size,
                "seconds": row.seconds,
                "fastest": row.fastest,
                "measured_seconds": row.measured,
            }
            for row in prediction.rows
        ],
        "crossovers": [
            {"bytes": each.size, "below": each.below, "above": each.above}
            for each in prediction.crossovers
        ],
    }
