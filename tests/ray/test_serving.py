"""Requests through Ray's proxies."""

import dataclasses
import json
import socket
import threading
import unittest

import grpc

import clients
import cluster
import wire

PROMPT = "Once upon a time"
GENERATION = "/lowkey.v1.Generation/"


def post(path: str, body: object) -> tuple[int, bytes]:
    return clients.request(cluster.HTTP_PORT, "POST", path, body)


def get(path: str) -> tuple[int, bytes]:
    return clients.request(cluster.HTTP_PORT, "GET", path)


def unary(method: str, message: bytes) -> bytes:
    return clients.unary(cluster.GRPC_PORT, method, message)


def is_open(address: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0


class OneModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cluster.shared_nodes()

    def test_http_gives_what_the_server_gives(self) -> None:
        body = clients.completion(PROMPT, 40)
        direct = clients.request(cluster.servers()[0].port, "POST", "/v1/completions", body)
        status, answer = post("/v1/completions", body)
        self.assertEqual(200, status)
        expected = json.loads(direct[1])["choices"][0]["text"]
        self.assertEqual(expected, json.loads(answer)["choices"][0]["text"])
        with clients.Events(cluster.HTTP_PORT, body) as events:
            streamed = [json.loads(data) for data in events if data != "[DONE]"]
        self.assertEqual(expected, "".join(choice["text"] for chunk in streamed
                                           for choice in chunk["choices"]))
        self.assertGreater(len(streamed), 1)

    def test_grpc_gives_what_the_server_gives(self) -> None:
        message = wire.generate(PROMPT, 40)
        direct = clients.unary(cluster.servers()[0].port, GENERATION + "Generate", message)
        expected = wire.answer_text(direct)
        answer = unary(GENERATION + "Generate", message)
        self.assertEqual(expected, wire.answer_text(answer))
        with clients.channel(cluster.GRPC_PORT) as channel:
            events = list(channel.unary_stream(GENERATION + "GenerateStream")(message))
        self.assertEqual(expected, "".join(map(wire.event_text, events)))
        self.assertEqual(1, len(wire.fields(events[-1], 3)))

    def test_the_second_nodes_proxy_serves_too(self) -> None:
        body = clients.completion(PROMPT, 4)
        self.assertEqual(200, clients.request(
            cluster.WORKER_HTTP_PORT, "POST", "/v1/completions", body)[0])
        clients.unary(cluster.WORKER_GRPC_PORT, GENERATION + "Generate", wire.generate(PROMPT, 4))

    @unittest.skipUnless(cluster.HAS_HAPROXY, "needs RAY_SERVE_ENABLE_HA_PROXY=1: else gateways have no ports")
    def test_a_stranger_is_refused_at_the_gateways_own_ports(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            address = probe.getsockname()[0]
        ports = [port for port in cluster.GATEWAY_PORTS if is_open(address, port)]
        self.assertTrue(ports)
        for port in ports:
            with (grpc.insecure_channel(f"{address}:{port}") as channel,
                  self.assertRaises(grpc.RpcError) as caught):
                channel.unary_unary("/lowkey.v1.Models/ListModels")(b"", timeout=clients.LONG_S)
            self.assertIs(grpc.StatusCode.PERMISSION_DENIED, caught.exception.code())

    def test_other_methods_and_pages_pass(self) -> None:
        for path in ("/v1/models", "/v1/models/tales", "/v1/models/tales@atp", "/version"):
            self.assertEqual(200, get(path)[0], path)
        self.assertIn(b"tokens", post("/tokenize", {"model": "tales", "prompt": "a"})[1])
        self.assertIn(b"tales", unary("/lowkey.v1.Models/ListModels", b""))
        ids = unary(GENERATION + "Tokenize", wire.text(2, PROMPT))
        self.assertTrue(wire.fields(ids, 1))

    def test_the_operators_pages_and_methods_do_not_pass(self) -> None:
        for path in ("/metrics", "/", "/lowkey/v1/stats", "/inference"):
            self.assertEqual(404, get(path)[0], path)
        for method in ("/lowkey.v1.Admin/Drain", "/lowkey.v1.Admin/Stats"):
            with self.assertRaises(grpc.RpcError) as caught:
                unary(method, b"")
            self.assertEqual(grpc.StatusCode.UNIMPLEMENTED, caught.exception.code())

    def test_errors_are_the_servers(self) -> None:
        status, answer = post("/v1/completions", clients.completion(PROMPT, 4) | {"top_p": 9})
        self.assertEqual(400, status)
        self.assertEqual("top_p", json.loads(answer)["error"]["param"])
        for method in ("Generate", "GenerateStream"):
            with self.assertRaises(grpc.RpcError) as caught, clients.channel(cluster.GRPC_PORT) as channel:
                list(channel.unary_stream(GENERATION + method)(wire.text(3, PROMPT) + wire.integer(8, 1 << 30)))
            self.assertEqual(grpc.StatusCode.OUT_OF_RANGE, caught.exception.code())
            self.assertIn("max_new_tokens", caught.exception.details())
        status, answer = post("/v1/completions", b"{" + b" " * (6 << 20))
        self.assertEqual(413, status)
        status, answer = post("/v1/completions", clients.completion("a" * (9 << 19), 4))
        self.assertEqual((413, "request_too_large"), (status, json.loads(answer)["error"]["code"]))
        self.assertEqual(404, post("/v1/nothing", {})[0])

    def test_a_prompt_returns_to_the_replica_that_knows_it(self) -> None:
        before = {server.port: wire.stats(server.port)[wire.FINISHED] for server in cluster.servers()}
        prompt = "There was a very old tree in the forest. " * 10
        for seed in range(6):
            answer = post("/v1/completions", clients.completion(prompt, 2, seed))[1]
        more = sorted(wire.stats(port)[wire.FINISHED] - count for port, count in before.items())
        self.assertEqual([0, 6], more)
        self.assertGreater(json.loads(answer)["usage"]["prompt_tokens_details"]["cached_tokens"], 0)


class Ends(unittest.TestCase):
    """Cancellation and deadlines reach the servers."""

    @classmethod
    def setUpClass(cls) -> None:
        cluster.shared_nodes()

    def setUp(self) -> None:
        self.ports = [server.port for server in cluster.servers()]
        self.before = self.count(wire.CANCELLED)

    def count(self, field: int) -> int:
        return sum(wire.stats(port)[field] for port in self.ports)

    def expect_one_cancelled(self) -> None:
        clients.wait_for(lambda: self.count(wire.CANCELLED) == self.before + 1, "cancelled", 60)
        self.assertEqual(0, self.count(wire.RUNNING))

    def test_a_client_that_leaves_an_http_stream(self) -> None:
        events = clients.Events(cluster.HTTP_PORT, clients.completion(PROMPT, 4000))
        next(iter(events))
        events.close()
        self.expect_one_cancelled()

    def test_a_client_that_leaves_before_an_http_answer(self) -> None:
        connection = socket.create_connection(("127.0.0.1", cluster.HTTP_PORT))
        body = json.dumps(clients.completion(PROMPT, 4000)).encode()
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: "
                           b"application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        clients.wait_for(lambda: self.count(wire.RUNNING) == 1, "running", 60)
        connection.close()
        self.expect_one_cancelled()

    def test_a_client_that_cancels_a_grpc_stream(self) -> None:
        with clients.channel(cluster.GRPC_PORT) as channel:
            call = channel.unary_stream(GENERATION + "GenerateStream")(wire.generate(PROMPT, 4000))
            next(call)
            call.cancel()
            self.expect_one_cancelled()

    def test_a_deadline_passes(self) -> None:
        for method in ("Generate", "GenerateStream"):
            with self.assertRaises(grpc.RpcError) as caught, clients.channel(cluster.GRPC_PORT) as channel:
                list(channel.unary_stream(GENERATION + method)(wire.generate(PROMPT, 4000), timeout=1))
            self.assertEqual(grpc.StatusCode.DEADLINE_EXCEEDED, caught.exception.code())
        clients.wait_for(lambda: self.count(wire.RUNNING) == 0, "nothing runs", 60)


class FullReplicas(unittest.TestCase):
    """Two replicas with room for two requests each."""

    @classmethod
    def setUpClass(cls) -> None:
        cluster.shared_nodes()
        flags = (*cluster.TALES.flags, "--max-running", "1", "--max-queued", "1")
        cluster.deploy(dataclasses.replace(cluster.TALES, flags=flags))

    @classmethod
    def tearDownClass(cls) -> None:
        cluster.deploy(cluster.TALES)

    def test_a_refused_request_goes_to_the_other_replica_and_further_ones_are_refused(self) -> None:
        calls = []
        with clients.channel(cluster.GRPC_PORT) as channel:
            for number in range(4):  # all of one prompt: they prefer the same replica
                call = channel.unary_stream(GENERATION + "GenerateStream")(
                    wire.generate(PROMPT, 4000, seed=number))
                calls.append(call)
                n_there = number + 1
                clients.wait_for(lambda: self.n_requests() == n_there, f"{n_there} admitted", 60)
            status, answer = post("/v1/completions", clients.completion(PROMPT, 4))
            self.assertEqual(429, status)
            self.assertEqual("queue_full", json.loads(answer)["error"]["code"])
            for method in ("Generate", "GenerateStream"):
                with self.assertRaises(grpc.RpcError) as caught:
                    list(channel.unary_stream(GENERATION + method)(wire.generate(PROMPT, 4)))
                self.assertEqual(grpc.StatusCode.RESOURCE_EXHAUSTED, caught.exception.code())
                trailers = dict(caught.exception.trailing_metadata())
                self.assertIn(b"google.rpc.RetryInfo", trailers["grpc-status-details-bin"])
            for call in calls:
                call.cancel()
        clients.wait_for(lambda: self.n_requests() == 0, "all cancelled", 60)

    @staticmethod
    def n_requests() -> int:
        stats = [wire.stats(server.port) for server in cluster.servers()]
        return sum(one[wire.RUNNING] + one[wire.WAITING] for one in stats)


class TwoModels(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cluster.shared_nodes()
        cls.other = cluster.linked_model("stories")
        cluster.deploy(dataclasses.replace(cluster.TALES, min_replicas=1, max_replicas=1,
                                           aliases=("gpt-4o",)), cls.other)

    @classmethod
    def tearDownClass(cls) -> None:
        cluster.deploy(cluster.TALES)

    def finished(self, model: str) -> int:
        return sum(wire.stats(server.port)[wire.FINISHED] for server in cluster.servers(model))

    def test_requests_go_to_the_model_that_they_name(self) -> None:
        before = self.finished("stories")
        for name in ("stories", "stories@taylorshift", "tales", "gpt-4o"):
            self.assertEqual(200, post("/v1/completions",
                                               clients.completion(PROMPT, 2, model=name))[0], name)
        self.assertEqual(200, get("/v1/models/stories%40atp")[0])
        unary(GENERATION + "Generate", wire.generate(PROMPT, 2, model="stories"))
        self.assertEqual(before + 3, self.finished("stories"))

    def test_lists_have_both(self) -> None:
        names = {model["id"] for model in json.loads(get("/v1/models")[1])["data"]}
        self.assertLessEqual({"tales", "stories"}, names)
        models = wire.fields(unary("/lowkey.v1.Models/ListModels", b""), 1)
        self.assertEqual({b"tales", b"stories"}, {wire.fields(model, 1)[0] for model in models})

    def test_other_names_are_refused(self) -> None:
        status, answer = post("/v1/completions", clients.completion(PROMPT, 2, model="x"))
        self.assertEqual((404, "model_not_found"), (status, json.loads(answer)["error"]["code"]))
        for model, code in (("x", grpc.StatusCode.NOT_FOUND), ("", grpc.StatusCode.INVALID_ARGUMENT)):
            with self.assertRaises(grpc.RpcError) as caught:
                unary(GENERATION + "Generate", wire.generate(PROMPT, 2, model=model))
            self.assertEqual(code, caught.exception.code())
            self.assertIn("expected one of stories, tales", caught.exception.details())


class Scaling(unittest.TestCase):
    @classmethod
    def tearDownClass(cls) -> None:
        cluster.deploy(cluster.TALES)

    def test_waiting_requests_bring_a_replica(self) -> None:
        cluster.shared_nodes()
        flags = (*cluster.TALES.flags, "--max-running", "1")
        cluster.deploy(dataclasses.replace(cluster.TALES, flags=flags, min_replicas=1, max_replicas=2,
                                           target_requests=2, upscale_delay_s=1))
        ended = threading.Event()

        def call() -> None:
            while not ended.is_set():
                post("/v1/completions", clients.completion(PROMPT, 500))

        threads = [threading.Thread(target=call) for _ in range(6)]
        for thread in threads:
            thread.start()
        try:
            clients.wait_for(lambda: len(cluster.servers()) == 2, "a second replica")
        finally:
            ended.set()
            for thread in threads:
                thread.join(clients.LONG_S)


if __name__ == "__main__":
    unittest.main()
