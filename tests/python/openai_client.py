"""Talks to a daemon as applications do, with the official client. A Rust test runs it and reads the JSON line that it prints.

    openai_client.py http://127.0.0.1:PORT
"""

import json
import sys

import openai

MESSAGES = [{"role": "user", "content": "Name the three primary colours."}]
KNOBS = {"temperature": 0, "max_tokens": 24, "seed": 1}


def chat_whole(client, model):
    """One answer in one piece."""
    reply = client.chat.completions.create(model=model, messages=MESSAGES, **KNOBS)
    choice = reply.choices[0]
    return {
        "object": reply.object,
        "role": choice.message.role,
        "text": choice.message.content,
        "finish_reason": choice.finish_reason,
        "prompt_tokens": reply.usage.prompt_tokens,
        "completion_tokens": reply.usage.completion_tokens,
    }


def chat_streamed(client, model):
    """The same answer piece by piece."""
    stream = client.chat.completions.create(
        model=model, messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **KNOBS
    )
    seen = {"objects": [], "roles": [], "pieces": [], "finish_reasons": [], "usages": [], "empty_choices": 0}
    for chunk in stream:
        seen["objects"].append(chunk.object)
        if chunk.usage:
            seen["usages"].append([chunk.usage.prompt_tokens, chunk.usage.completion_tokens])
        seen["empty_choices"] += not chunk.choices
        for choice in chunk.choices:
            if choice.delta.role:
                seen["roles"].append(choice.delta.role)
            if choice.delta.content:
                seen["pieces"].append(choice.delta.content)
            if choice.finish_reason:
                seen["finish_reasons"].append(choice.finish_reason)
    return seen


def completion(client, model):
    """Raw text continued."""
    reply = client.completions.create(model=model, prompt="The capital of France is", temperature=0, max_tokens=8)
    return {"object": reply.object, "text": reply.choices[0].text, "finish_reason": reply.choices[0].finish_reason}


def too_long(client, model):
    """What the client makes of a prompt over the context."""
    messages = [{"role": "user", "content": "ship " * 200_000}]
    try:
        client.chat.completions.create(model=model, messages=messages, max_tokens=1)
    except openai.BadRequestError as error:
        return {"status": error.status_code, "type": error.type, "body": error.body}
    return {"status": 200}


def main():
    """Runs everything once."""
    client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="any", max_retries=0, timeout=120)
    listed = [model.id for model in client.models.list().data]
    model = listed[0]
    print(
        json.dumps(
            {
                "models": listed,
                "whole": chat_whole(client, model),
                "streamed": chat_streamed(client, model),
                "completion": completion(client, model),
                "too_long": too_long(client, model),
            }
        )
    )


if __name__ == "__main__":
    main()
