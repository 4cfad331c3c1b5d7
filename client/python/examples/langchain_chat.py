"""Uses a server as LangChain's chat model, over HTTP.

    pip install langchain-openai
    python langchain_chat.py "Name three rivers."
"""

import os
import sys

from langchain_openai import ChatOpenAI

server = os.environ.get("LOWKEY_SERVER", "127.0.0.1:50051")
# NAME@MECHANISM chooses the attention where a client has no field for it.
model = ChatOpenAI(base_url=f"http://{server}/v1", api_key=os.environ.get("API_KEY", "none"),
                   model=os.environ.get("MODEL", "SmolLM2-135M-Instruct.Q4_1.gguf@standard"),
                   max_completion_tokens=100)
for chunk in model.stream(" ".join(sys.argv[1:]) or "Name three rivers."):
    print(chunk.content, end="", flush=True)
print()
