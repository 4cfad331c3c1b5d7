"""The asyncio client of client/python, where it differs from the synchronous one."""

import asyncio
import unittest

import lowkey

import made_requests as made
from running_server import LONG_S, shared_server


class PythonAsyncClientTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.server = shared_server()
        self.client = lowkey.AsyncClient(self.server.address, timeout=LONG_S)

    async def asyncTearDown(self):
        await self.client.close()

    async def await_idle(self):
        return await asyncio.to_thread(self.server.await_idle)

    def endless(self):
        return self.client.stream(made.STORY, max_new_tokens=4000, ignore_eos=True)

    async def test_both_clients_give_the_same_answers(self):
        options = {"max_new_tokens": 20, "temperature": 1.0, "seed": 5, "logprobs": 1,
                   "prompt_logprobs": 1}
        with lowkey.Client(self.server.address) as other:
            whole = other.generate(made.STORY, **options)
            self.assertEqual(await self.client.models(), other.models())
            self.assertEqual(await self.client.model(), other.model())
            self.assertEqual(await self.client.score(made.STORY, [" a", " b"]),
                             other.score(made.STORY, [" a", " b"]))
            self.assertEqual(await self.client.tokenize("a b"), other.tokenize("a b"))
        self.assertEqual((await self.client.generate(made.STORY, **options)).choices, whole.choices)
        async with self.client.stream(made.STORY, **options) as stream:
            texts = [delta.text async for delta in stream]
        self.assertEqual("".join(texts), whole.text)
        self.assertEqual(stream.result.choices, whole.choices)
        self.assertEqual(stream.result.prompt_logprobs, whole.prompt_logprobs)
        self.assertEqual(await self.client.detokenize([token.token_id
                                                       for token in whole.choices[0].tokens]),
                         whole.text.lstrip())

    async def test_many_at_once(self):
        answers = await asyncio.gather(*(
            self.client.generate(made.STORY, max_new_tokens=8, temperature=1, seed=seed)
            for seed in range(20)))
        self.assertEqual([answer.seed for answer in answers], list(range(20)))

    async def test_closing_a_stream_cancels_it(self):
        async def close(stream):
            await stream.close()

        async def leave_the_block(stream):
            async with stream:
                pass

        for end in (close, leave_the_block):
            before = await self.await_idle()
            stream = self.endless()
            await anext(stream)
            await end(stream)
            self.assertEqual([delta async for delta in stream], [])
            after = await self.await_idle()
            self.assertEqual(after.cancelled_requests, before.cancelled_requests + 1)

    async def test_closing_from_another_task_ends_the_iteration(self):
        stream = self.client.stream("a", max_new_tokens=4000, ignore_eos=True)
        deltas = []

        async def read():
            async for delta in stream:
                deltas.append(delta)

        reader = asyncio.create_task(read())
        while not deltas:
            await asyncio.sleep(0.01)
        await stream.close()
        await asyncio.wait_for(reader, LONG_S)  # it does not raise

    async def test_cancelling_a_task_cancels_the_request(self):
        async def read():
            async for _ in self.endless():
                pass

        async def generate():
            await self.client.generate(made.STORY, max_new_tokens=4000, ignore_eos=True)

        for work in (read, generate):
            before = await self.await_idle()
            task = asyncio.create_task(work())
            while not (await self.client.stats()).running_requests:
                await asyncio.sleep(0.01)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            after = await self.await_idle()
            self.assertEqual(after.cancelled_requests, before.cancelled_requests + 1, work)

    async def test_errors_have_their_class(self):
        with self.assertRaises(lowkey.InvalidArgumentError) as raised:
            await self.client.generate(made.STORY, temperature=3)
        self.assertIn("temperature", raised.exception.message)
        with self.assertRaises(lowkey.NotFoundError):
            await self.client.stream(made.STORY, model="other").finish()
        with self.assertRaises(lowkey.DeadlineExceededError):
            await self.client.stream(made.STORY, max_new_tokens=4000, ignore_eos=True,
                                     timeout=0.3).finish()
        async with lowkey.AsyncClient("127.0.0.1:1") as client:
            with self.assertRaises(lowkey.UnavailableError):
                await client.stats(timeout=5)

    async def test_a_result_is_there_at_the_end(self):
        stream = self.client.stream(made.STORY, max_new_tokens=2)
        with self.assertRaises(RuntimeError):
            stream.result
        self.assertEqual(await stream.finish(), stream.result)
