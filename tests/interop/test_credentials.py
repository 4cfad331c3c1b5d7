"""TLS, client certificates and tokens, as official clients present them."""

import json
import pathlib
import socket
import ssl
import subprocess
import tempfile

import grpc
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status
from lowkey.v1 import admin_pb2, admin_pb2_grpc, generation_pb2, generation_pb2_grpc

import made_requests as made
from running_server import CHANNEL_OPTIONS, LONG_S, InteropTest, RunningServer

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
DENIED = grpc.StatusCode.PERMISSION_DENIED
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
TOKENS = {"all": ["generate", "read", "admin"], "generate": ["generate"], "read": ["read"]}


def token(name):
    return f"token-with-the-rights-{name}"


def openssl(folder, *arguments):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-noenc", "-days", "2", *arguments],
                   check=True, cwd=folder, capture_output=True)


def make_certificates(folder):
    """An authority, what it signed for server and client, and an authority that nobody trusts."""
    for name in ("ca", "other-ca"):
        openssl(folder, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
    for name in ("server", "client"):
        openssl(folder, "-CA", "ca.pem", "-CAkey", "ca.key", "-subj", f"/CN={name}",
                "-addext", "basicConstraints=CA:FALSE",
                "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                "-keyout", f"{name}.key", "-out", f"{name}.pem")


def make_tokens(folder):
    tenants = [{"name": "ours", "tokens": [{"token": token(name), "rights": rights}
                                           for name, rights in TOKENS.items()]},
               {"name": "small", "max_live_requests": 1, "tokens": [{"token": token("small")}]},
               {"name": "slow", "tokens_per_minute": 60, "tokens": [{"token": token("slow")}]}]
    (folder / "tokens.json").write_text(json.dumps({"tenants": tenants}))
    (folder / "tokens.json").chmod(0o600)


class CredentialsTest(InteropTest):
    FLAGS = ("--tokens", "tokens.json", "--tls-cert", "server.pem", "--tls-key", "server.key")

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        make_certificates(cls.folder)
        make_tokens(cls.folder)
        flags = [str(cls.folder / flag) if "." in flag else flag for flag in cls.FLAGS]
        cls.server = RunningServer(*flags)
        cls.addClassCleanup(cls.server.stop)

    def setUp(self):
        pass

    def read(self, name):
        return (self.folder / name).read_bytes()

    def secure_channel(self, call_credentials=None, authority="ca.pem", **certificate):
        credentials = grpc.ssl_channel_credentials(self.read(authority), **certificate)
        if call_credentials is not None:
            credentials = grpc.composite_channel_credentials(credentials, call_credentials)
        channel = grpc.secure_channel(self.server.address, credentials, options=CHANNEL_OPTIONS)
        self.addCleanup(channel.close)
        return channel

    def channel_of(self, name):
        """A channel that sends a token with each call."""
        return self.secure_channel(grpc.access_token_call_credentials(token(name)))

    def stats(self, channel, **options):
        return admin_pb2_grpc.AdminStub(channel).Stats(admin_pb2.StatsRequest(), timeout=LONG_S,
                                                       **options)


class TokenTest(CredentialsTest):
    def test_calls_without_a_known_token(self):
        for metadata in ((), (("authorization", "Bearer token-that-nobody-has-0"),),
                         (("authorization", f"Basic {token('all')}"),), (("authorization", ""),),
                         (("authorization", f"Bearer {token('all')}"),) * 2):
            channel = self.secure_channel()
            error = self.assert_fails(UNAUTHENTICATED,
                                      lambda: self.stats(channel, metadata=metadata))
            self.assertIn("authorization", error.details())
            stub = generation_pb2_grpc.GenerationStub(channel)
            self.assert_fails(UNAUTHENTICATED, lambda: list(
                stub.GenerateStream(made.generate(), metadata=metadata)))
            # Nor are they told which methods there are.
            for path in ("/lowkey.v1.Generation/Unknown", "/unknown/x"):
                self.assert_fails(UNAUTHENTICATED, lambda: channel.unary_unary(path)(
                    b"", timeout=LONG_S, metadata=metadata))

    def test_large_message_without_a_token(self):
        call = self.secure_channel().unary_unary("/lowkey.v1.Generation/Tokenize")
        data = made.padded(generation_pb2.TokenizeRequest(text="a"), made.MAX_MESSAGE_BYTES)
        for _ in range(10):
            self.assert_fails(UNAUTHENTICATED, lambda: call(data, timeout=LONG_S))

    def test_rights(self):
        def generate(channel):
            return generation_pb2_grpc.GenerationStub(channel).Generate(made.generate(4))

        def drain(channel):
            return admin_pb2_grpc.AdminStub(channel).Drain(admin_pb2.DrainRequest(),
                                                           timeout=LONG_S)

        def unknown(channel):
            return channel.unary_unary("/lowkey.v1.Generation2/Unknown")(b"", timeout=LONG_S)

        def reflection(channel):
            return list(channel.stream_stream(
                "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")(
                    iter([]), timeout=LONG_S))

        allowed = {"all": (generate, self.stats, reflection), "generate": (generate,),
                   "read": (self.stats, reflection)}
        for name, calls in allowed.items():
            channel = self.channel_of(name)
            for call in (generate, self.stats, reflection):
                if call in calls:
                    call(channel)
                else:
                    error = self.assert_fails(DENIED, lambda c=call: c(channel))
                    self.assertIn("lacks the right", error.details())
            if name != "all":
                self.assert_fails(DENIED, lambda: drain(channel))
                self.assert_fails(DENIED, lambda: unknown(channel))
        self.assert_fails(grpc.StatusCode.UNIMPLEMENTED, lambda: unknown(self.channel_of("all")))

    def test_health_needs_no_token(self):
        health = health_pb2_grpc.HealthStub(self.secure_channel())
        answer = health.Check(health_pb2.HealthCheckRequest(), timeout=LONG_S)
        self.assertEqual(answer.status, health_pb2.HealthCheckResponse.SERVING)

    def test_tokens_that_change_from_call_to_call(self):
        class Plugin(grpc.AuthMetadataPlugin):
            n_calls = 0

            def __call__(self, context, callback):
                Plugin.n_calls += 1
                name = "all" if Plugin.n_calls % 2 else "generate"
                callback((("authorization", f"Bearer {token(name)}"),), None)

        channel = self.secure_channel(grpc.metadata_call_credentials(Plugin()))
        for _ in range(10):
            self.assertTrue(self.stats(channel).version)
            self.assert_fails(DENIED, lambda: self.stats(channel))

    def retry_delay(self, call):
        error = self.assert_fails(grpc.StatusCode.RESOURCE_EXHAUSTED, call)
        info = error_details_pb2.RetryInfo()
        self.assertTrue(rpc_status.from_call(error).details[0].Unpack(info))
        return info.retry_delay.ToNanoseconds()

    def test_quotas_say_when_to_try_again(self):
        small = generation_pb2_grpc.GenerationStub(self.channel_of("small"))
        running = small.GenerateStream(made.endless(n=8, logprobs=20))
        next(running)
        self.assertGreater(self.retry_delay(
            lambda: small.Generate(made.generate(4))), 0)
        running.cancel()
        slow = generation_pb2_grpc.GenerationStub(self.channel_of("slow"))
        slow.Generate(made.generate(200))
        self.assertGreater(self.retry_delay(
            lambda: list(slow.GenerateStream(made.generate(4)))), 10 ** 9)


class TlsTest(CredentialsTest):
    def test_streams_and_large_messages(self):
        channel = self.channel_of("all")
        stub = generation_pb2_grpc.GenerationStub(channel)
        events = list(stub.GenerateStream(made.generate(100)))
        self.assertEqual(made.n_tokens(events), 100)
        call = channel.unary_unary("/lowkey.v1.Generation/Tokenize")
        request = generation_pb2.TokenizeRequest(text=made.STORY)
        self.assertEqual(call(made.padded(request, made.MAX_MESSAGE_BYTES), timeout=LONG_S),
                         call(request.SerializeToString(), timeout=LONG_S))

    def test_client_that_trusts_another_authority(self):
        channel = self.secure_channel(authority="other-ca.pem")
        self.assert_fails(UNAVAILABLE, lambda: self.stats(channel))

    def test_client_in_clear(self):
        with self.server.channel() as channel:
            self.assert_fails(UNAVAILABLE, lambda: self.stats(channel))

    def test_alpn(self):
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            for offered, chosen in ((["h2"], "h2"), (["h2", "http/1.1"], "h2"),
                                    (["http/1.1"], "http/1.1"), (["other", "h2"], "h2")):
                context = ssl.create_default_context(cadata=self.read("ca.pem").decode())
                context.minimum_version = context.maximum_version = version
                context.set_alpn_protocols(offered)
                with socket.create_connection(("127.0.0.1", self.server.port), LONG_S) as plain, \
                        context.wrap_socket(plain, server_hostname="localhost") as tls:
                    self.assertEqual(tls.selected_alpn_protocol(), chosen)
                    self.assertEqual(tls.version(), version.name.replace("v1_", "v1."))


class ClientCertificateTest(CredentialsTest):
    FLAGS = ("--tls-cert", "server.pem", "--tls-key", "server.key", "--tls-client-ca", "ca.pem")

    def test_client_with_its_certificate(self):
        channel = self.secure_channel(private_key=self.read("client.key"),
                                      certificate_chain=self.read("client.pem"))
        self.assertTrue(self.stats(channel).version)

    def test_client_without_a_certificate(self):
        channel = self.secure_channel()
        self.assert_fails(UNAVAILABLE, lambda: self.stats(channel))
        health = health_pb2_grpc.HealthStub(channel)
        self.assert_fails(UNAVAILABLE, lambda: health.Check(health_pb2.HealthCheckRequest(),
                                                            timeout=LONG_S))

    def test_client_with_a_certificate_of_its_own(self):
        channel = self.secure_channel(private_key=self.read("other-ca.key"),
                                      certificate_chain=self.read("other-ca.pem"))
        self.assert_fails(UNAVAILABLE, lambda: self.stats(channel))
