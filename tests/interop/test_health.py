"""grpc.health.v1 as grpc_health_probe and load balancers use it."""

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from running_server import LONG_S, InteropTest

SERVICES = ("", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection", "inference.GRPCInferenceService",
            "lowkey.v1.Admin", "lowkey.v1.Generation", "lowkey.v1.Models")
Status = health_pb2.HealthCheckResponse


class HealthTest(InteropTest):
    def setUp(self):
        super().setUp()
        self.health = health_pb2_grpc.HealthStub(self.channel)

    def test_check(self):
        for service in SERVICES:
            answer = self.health.Check(health_pb2.HealthCheckRequest(service=service),
                                       timeout=LONG_S)
            self.assertEqual(answer.status, Status.SERVING)

    def test_check_of_an_unknown_service(self):
        error = self.assert_fails(grpc.StatusCode.NOT_FOUND, lambda: self.health.Check(
            health_pb2.HealthCheckRequest(service="lowkey.v1.Other"), timeout=LONG_S))
        self.assertIn("lowkey.v1.Other", error.details())

    def test_watch(self):
        watches = {service: self.health.Watch(health_pb2.HealthCheckRequest(service=service))
                   for service in (*SERVICES, "lowkey.v1.Other")}
        for service, watch in watches.items():
            self.assertEqual(next(watch).status, Status.SERVING if service in SERVICES
                             else Status.SERVICE_UNKNOWN)
        for watch in watches.values():
            self.assertTrue(watch.is_active())
            watch.cancel()

    def test_list(self):
        answer = self.health.List(health_pb2.HealthListRequest(), timeout=LONG_S)
        self.assertEqual({name: one.status for name, one in answer.statuses.items()},
                         dict.fromkeys(SERVICES, Status.SERVING))

    def test_channel_that_watches_health_by_itself(self):
        # A client with healthCheckConfig sends nothing to a server that is not SERVING.
        config = '{"loadBalancingConfig": [{"round_robin": {}}], ' \
                 '"healthCheckConfig": {"serviceName": "%s"}}'
        good = self.open_channel(("grpc.service_config", config % "lowkey.v1.Generation"))
        self.assert_channel_works(good)
        bad = self.open_channel(("grpc.service_config", config % "lowkey.v1.Other"))
        self.assert_fails(grpc.StatusCode.UNAVAILABLE, lambda: self.assert_channel_works(bad))
