"""The Ray Serve application: a deployment for each model, and the gateway in front of them."""

from collections.abc import Sequence
from typing import Any

from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, RequestRouterConfig

from lowkey_ray.gateway import gateway_deployment
from lowkey_ray.replica import Replica
from lowkey_ray.settings import Model

# The server bounds what runs and waits (--max-running, --max-queued) and refuses with a reason; Ray's
# own bound is above that, and holds back what comes while no replica can be reached.
MAX_ONGOING = 1024
MAX_QUEUED = 1024
HEALTH_PERIOD_S = 2.0
ROUTER: dict[str, Any] = {"request_router_class": "lowkey_ray.router:PrefixRouter",
                          "request_routing_stats_period_s": 5.0}


def build(models: Sequence[Model], n_gateways: int, *, is_open: bool) -> serve.Application:
    """Returns the application. Unless it is open, its gateway answers callers of the proxies' own
    machines alone."""
    names = {name: model.name for model in models for name in (model.name, *model.aliases)}
    # Ray puts handles in the places of applications.
    handles = {model.name: _deployment(model).bind(model) for model in models}
    return gateway_deployment(n_gateways).bind(handles, names, is_open)


def _deployment(model: Model) -> serve.Deployment:
    return serve.deployment(
        name=model.name,
        max_ongoing_requests=MAX_ONGOING,
        max_queued_requests=MAX_QUEUED,
        health_check_period_s=HEALTH_PERIOD_S,
        graceful_shutdown_timeout_s=model.grace_s + 10,
        autoscaling_config=AutoscalingConfig(
            min_replicas=model.min_replicas,
            max_replicas=model.max_replicas,
            target_ongoing_requests=model.target_requests,
            upscale_delay_s=model.upscale_delay_s,
            downscale_delay_s=model.downscale_delay_s,
            policy=AutoscalingPolicy(  # type: ignore[no-untyped-call]
                policy_function="lowkey_ray.scaling:by_requests")),
        request_router_config=RequestRouterConfig(**ROUTER),
        ray_actor_options={"num_cpus": model.threads, "num_gpus": 1 if model.device else 0},
    )(Replica)
