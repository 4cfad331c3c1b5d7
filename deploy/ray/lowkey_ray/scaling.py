"""How many replicas a model needs: by the running and the waiting requests of its servers."""

from typing import Any

from ray.serve.config import AutoscalingContext


def by_requests(context: AutoscalingContext) -> tuple[float, dict[str, Any]]:
    """Returns the replicas at which each would have the configured number of requests.

    Ray bounds the number, and applies the configured delays and factors.
    """
    metrics = context.aggregated_metrics or {}
    n_requests = sum(value for name in ("running", "waiting")
                     for value in metrics.get(name, {}).values())
    n_requests += context.total_queued_requests or 0.0  # they wait in a gateway for a replica
    assert context.config is not None
    return n_requests / context.config.target_ongoing_requests, {}
