"""The programs that are compared: each runs one measure in a process of its own.

A measure is `start` (time to ready and resident memory), `depth:N` (a prompt of N tokens, then 64
tokens behind it), `streams:N` (N sequences of 16 tokens that generate 64) or `served:N` (N clients,
128 tokens in and 64 out). A contender's `measure` returns a dictionary of figures.
"""
import dataclasses
import json
import pathlib
import subprocess

from peers import served

DECODE_TOKENS = 64
SHORT_TOKENS = 16
SERVED_IN, SERVED_OUT = served.TOKENS_IN, served.TOKENS_OUT


class Failed(Exception):
    """A program ended with an error or said nothing that can be read; the text says what."""


@dataclasses.dataclass
class Tools:
    """Where the programs are, and how long and large a measure is."""
    build: str
    llama: str = ""
    python: str = ""  # an interpreter with openvino-genai
    rounds: int = 6  # requests of each client
    decode_tokens: int = DECODE_TOKENS
    limit_s: float = 3600


def output(tools, command):
    """Returns the standard output of a program."""
    try:
        done = subprocess.run([str(word) for word in command], check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=tools.limit_s)
    except OSError as error:
        raise Failed(f"{command[0]}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{command[0]}: still running after {tools.limit_s:.0f} s") from error
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise Failed(f"{pathlib.Path(command[0]).name}: exit code {done.returncode}: {last}")
    return done.stdout


def lines_of_json(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def figures(text):
    """Returns the figures of engine_bench and openvino_worker.py by name."""
    found = {}
    for line in lines_of_json(text):
        found[line.pop("figure")] = line
    return found


@dataclasses.dataclass
class Contender:
    """One program with one format of the weights."""
    tools: Tools
    folder: pathlib.Path  # of the model's files
    format: str  # as the program calls the weights
    bits: int  # of the class of formats in which it is compared: 16, 8 or 4
    file: str  # in the folder

    program = ""

    @property
    def name(self):
        return f"{self.program} {self.format}"

    @property
    def path(self):
        return self.folder / self.file

    def missing(self):
        """Returns what keeps the contender from running, or None."""
        needed = [*self.programs(), self.path]
        return next((str(path) for path in needed if not pathlib.Path(path).exists()), None)

    def programs(self):
        raise NotImplementedError

    def measure(self, measure, threads):
        kind, _, n = measure.partition(":")
        return getattr(self, kind)(threads, *([int(n)] if n else []))


@dataclasses.dataclass
class Lowkey(Contender):
    dtype: str = "auto"

    program = "lowkey"

    def programs(self):
        return [f"{self.tools.build}/lowkey", f"{self.tools.build}/bench/engine_bench"]

    def bench(self, threads, figure):
        found = figures(output(self.tools, [
            f"{self.tools.build}/bench/engine_bench", "--model", self.path, "--dtype", self.dtype,
            "--threads", threads, "--decode_tokens", self.tools.decode_tokens,
            "--figures", figure]))
        if figure not in found:
            raise Failed(f"engine_bench: no line for {figure}")
        return {**found[figure], "dtype": found["engine"]["dtype"]}

    def machine(self, threads):
        figure = self.bench(threads, "machine")
        return {key: figure[key] for key in ("isa", "fma_gflops", "read_gb_per_s")}

    def depth(self, threads, n):
        return self.bench(threads, f"depth:{n}")

    def streams(self, threads, n):
        return self.bench(threads, f"streams:{n}")

    def server(self, threads):
        return served.Lowkey([f"{self.tools.build}/lowkey", "serve", "--model", str(self.path),
                              "--dtype", self.dtype, "--threads", str(threads), "--port", "0",
                              "--prefix-cache", "off", "--profile", "none", "--json"])

    def start(self, threads):
        with self.server(threads) as server:
            return server.ready()

    def served(self, threads, n):
        with self.server(threads) as server:
            server.ready()
            point = json.loads(output(self.tools, [
                f"{self.tools.build}/lowkey", "bench", "--server", server.address,
                "--concurrency", n, "--requests", n * self.tools.rounds, "--warmup", "0",
                "--input-tokens", SERVED_IN, "--output-tokens", SERVED_OUT, "--json"]))["points"][0]
            if point["ok"] != n * self.tools.rounds:
                raise Failed(f"lowkey bench: {point['errors']}")
            return {"output_tokens_per_s": point["output_tokens_per_s"],
                    "first_token_p95_ms": point["ttft_ms"]["p95"], **server.memory()}


@dataclasses.dataclass
class LlamaCpp(Contender):
    program = "llama.cpp"

    def programs(self):
        return [f"{self.tools.llama or '.'}/llama-batched-bench"]

    def batched(self, threads, n_prompt, n_new, n):
        context = n * (n_prompt + n_new)
        lines = lines_of_json(output(self.tools, [
            f"{self.tools.llama}/llama-batched-bench", "-m", self.path, "-t", threads,
            "-c", context, "-npp", n_prompt, "-ntg", n_new, "-npl", n,
            "--output-format", "jsonl"]))
        if len(lines) != 1:
            raise Failed("llama-batched-bench: no line of figures")
        return lines[0]

    def depth(self, threads, n):
        line = self.batched(threads, n, self.tools.decode_tokens, 1)
        return {"prefill_tokens_per_s": line["speed_pp"], "decode_tokens_per_s": line["speed_tg"]}

    def streams(self, threads, n):
        line = self.batched(threads, SHORT_TOKENS, self.tools.decode_tokens, n)
        return {"decode_tokens_per_s": line["speed_tg"]}

    def server(self, threads, slots):
        context = slots * 2 * (SERVED_IN + SERVED_OUT)
        return served.LlamaServer([f"{self.tools.llama}/llama-server", "-m", str(self.path),
                                   "-t", str(threads), "-c", str(context), "-np", str(slots),
                                   "--cache-ram", "0"])

    def has_server(self):
        return pathlib.Path(f"{self.tools.llama}/llama-server").exists()

    def start(self, threads):
        if not self.has_server():
            raise Failed("llama-server: no such program")
        with self.server(threads, 16) as server:
            return server.ready()

    def served(self, threads, n):
        if not self.has_server():  # the same tokens in one batch stand in for clients
            line = self.batched(threads, SERVED_IN, SERVED_OUT, n)
            return {"output_tokens_per_s": n * SERVED_OUT / line["t"], "stand_in": True}
        with self.server(threads, n) as server:
            server.ready()
            result = served.closed_loop(server, n, n * self.tools.rounds)
            return {**result, **server.memory()}


@dataclasses.dataclass
class OpenVino(Contender):
    program = "OpenVINO"

    def programs(self):
        return [self.tools.python]

    def worker(self, threads, figure=""):
        found = figures(output(self.tools, [
            self.tools.python, pathlib.Path(__file__).parent / "openvino_worker.py", self.path,
            "--threads", threads, "--decode-tokens", self.tools.decode_tokens,
            "--rounds", self.tools.rounds, *(["--figures", figure] if figure else [])]))
        if figure and figure not in found:
            raise Failed(f"openvino_worker.py: no line for {figure}")
        return found

    def depth(self, threads, n):
        return self.worker(threads, f"depth:{n}")[f"depth:{n}"]

    def streams(self, threads, n):
        return self.worker(threads, f"streams:{n}")[f"streams:{n}"]

    def start(self, threads):
        return self.worker(threads)["ready"]

    def served(self, threads, n):
        found = self.worker(threads, f"served:{n}")
        return {**found[f"served:{n}"], "stand_in": True, "peak_rss_mib": found["end"]["peak_rss_mib"]}


def contenders(tools, folder):
    """All contenders of a model, those whose files are missing too."""
    folder = pathlib.Path(folder)
    return [
        Lowkey(tools, folder, "bf16", 16, "bf16.gguf", "bfloat16"),
        Lowkey(tools, folder, "int8", 8, "bf16.gguf", "int8"),
        Lowkey(tools, folder, "Q8_0", 8, "q8_0.gguf"),
        Lowkey(tools, folder, "Q4_0", 4, "q4_0.gguf"),
        Lowkey(tools, folder, "Q4_K_M", 4, "q4_k_m.gguf"),
        LlamaCpp(tools, folder, "BF16", 16, "bf16.gguf"),
        LlamaCpp(tools, folder, "F16", 16, "f16.gguf"),
        LlamaCpp(tools, folder, "Q8_0", 8, "q8_0.gguf"),
        LlamaCpp(tools, folder, "Q4_0", 4, "q4_0.gguf"),
        LlamaCpp(tools, folder, "Q4_K_M", 4, "q4_k_m.gguf"),
        OpenVino(tools, folder, "16-bit", 16, "openvino_f16"),
        OpenVino(tools, folder, "int8", 8, "openvino_int8"),
        OpenVino(tools, folder, "int4", 4, "openvino_int4"),
    ]
