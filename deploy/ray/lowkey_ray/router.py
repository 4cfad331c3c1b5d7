"""Ray's request router, with prompts sent where their beginning is cached."""

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from lowkey_ray import affinity
from lowkey_ray.calls import Call


class PrefixRouter(RequestRouter):
    """Tries a prompt's own replicas first and the least loaded ones after them.

    A replica that has as many requests as Ray lets it have is passed over for the next in order;
    those that refused the request, and those without a server, come last.
    """

    async def choose_replicas(
            self, candidate_replicas: list[RunningReplica],
            pending_request: PendingRequest | None = None) -> list[list[RunningReplica]]:
        replicas = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        loads = {name: self._load(replica) for name, replica in replicas.items()}
        call = pending_request.args[0] if pending_request and pending_request.args else None
        key, refused = (call.key, call.avoid) if isinstance(call, Call) else (b"", ())
        # Without a server a replica refuses at once, so that it looks idle.
        absent = [name for name, replica in replicas.items()
                  if replica.routing_stats.get("port") == 0]
        names = affinity.order(key, loads, (*refused, *absent))
        return [[replicas[name]] for name in names]

    def _load(self, replica: RunningReplica) -> float:
        """Returns the requests of a replica: as it said with its last answer to this gateway, or
        by its last Stats where that is long ago."""
        n_requests = self.replica_queue_len_cache.get(replica.replica_id)
        if n_requests is not None:
            return float(n_requests)
        stats = replica.routing_stats
        return float(stats.get("running", 0.0) + stats.get("waiting", 0.0))
