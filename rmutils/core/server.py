"""The one client for servers with OpenAI's interface, such as `vllm serve`."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeVar

T = TypeVar("T")

PAUSE = 1.0
"""Seconds before the second try; twice as many before each further one."""


class ServerError(Exception):
    """A request that got no usable answer, in words.

    Attributes
    ----------
    status : int or None
        HTTP status of the answer; None if there was none, or none that could be read.
    reached : bool
        False if there was no connection.
    """

    def __init__(self, cause: str, status: int | None = None, *, reached: bool = True):
        super().__init__(cause)
        self.status, self.reached = status, reached

    @property
    def passing(self) -> bool:
        """True if the same request may succeed later: the server is in trouble, or overloaded."""
        return self.status is None or self.status >= 500 or self.status in (408, 429)


class Client:
    """Sends requests to one server and tries again where they fail.

    Connections are direct, whatever proxy the environment names, and no key but the given one is
    sent.

    Parameters
    ----------
    url : str
        With `/v1` at its end or without.
    timeout : float
        Seconds without a word from the server.
    tries : int
        How often a request is sent at most.
    key : str, optional
        Sent as bearer token.

    Raises
    ------
    ValueError
        The URL is none.
    """

    def __init__(self, url: str, *, timeout: float, tries: int, key: str | None = None):
        if not re.fullmatch(r"https?://[^\s/:]+(:\d+)?(/\S*)?", url):
            raise ValueError(url)
        self.url = url.rstrip("/").removesuffix("/v1")
        self.timeout, self.tries, self._key = timeout, tries, key

    @cached_property
    def _client(self) -> Any:
        import openai  # here, because importing it takes a second

        return openai.OpenAI(base_url=self.url, api_key=self._key or "none", max_retries=0,
                             http_client=openai.DefaultHttpxClient(trust_env=False))

    def call(self, path: str, read: Callable[[Any], T],
             body: Mapping[str, Any] | None = None) -> T:
        """Return what `read` takes from the answer to a request.

        Parameters
        ----------
        path : str
            Below the URL, such as `/v1/completions`.
        read : callable
            Takes the answer's JSON, or None where the answer is no JSON. An answer on which it
            fails is asked for again.
        body : mapping, optional
            Sent as JSON by POST; without it the request is a GET.

        Raises
        ------
        ServerError
            The server refused, or the last try failed, too.
        """
        for attempt in range(1, self.tries + 1):
            try:
                return self._once(path, read, body)
            except ServerError as error:
                if attempt == self.tries or not error.passing:
                    raise
            time.sleep(PAUSE * 2 ** (attempt - 1))
        raise AssertionError("at least one try")

    def _once(self, path: str, read: Callable[[Any], T], body: Mapping[str, Any] | None) -> T:
        import openai

        # Else what the environment has for OpenAI's own server would be sent to this one.
        headers = {"OpenAI-Organization": openai.Omit(), "OpenAI-Project": openai.Omit()}
        if not self._key:
            headers["Authorization"] = openai.Omit()
        options = {"timeout": self.timeout, "headers": headers}
        try:
            reply = (self._client.get(path, cast_to=str, options=options) if body is None else
                     self._client.post(path, cast_to=str, body=body, options=options))
        except openai.APIStatusError as error:
            said = error.response.text.strip()[:300]
            raise ServerError(f"{error.status_code} {error.response.reason_phrase}: {said}",
                              error.status_code) from error
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            kind = type(cause).__name__
            raise ServerError(str(cause) or kind, reached=not kind.startswith("Connect")) from error
        try:
            return read(_json(reply))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ServerError(f"its answer is not what was expected ({type(error).__name__}: "
                              f"{error})") from error


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
