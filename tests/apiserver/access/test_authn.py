"""Who a request's user is."""

from __future__ import annotations

import pytest

from kubectl_runtime.apiserver.access import User
from kubectl_runtime.apiserver.access.authn import (
    ADMIN,
    ANONYMOUS,
    CREDENTIAL_ID,
    Authenticator,
    TokenFileError,
    load_token_file,
    parse_token_file,
)
from kubectl_runtime.apiserver.errors import StatusError
from kubectl_runtime.apiserver.wire import HttpRequest

TOKENS = 'ADMIN,admin,1,system:masters\nALICE,alice,2,"devs,ops"\n\nBOB,bob,3\n'


def request(authorization: str = "", subject: tuple[tuple[str, str], ...] | None = None) -> HttpRequest:
    headers = {"authorization": authorization} if authorization else {}
    return HttpRequest("GET", "/api", headers=headers, peer_cert_subject=subject)


def test_a_token_file_gives_users_with_uid_and_groups() -> None:
    assert parse_token_file(TOKENS) == {
        "ADMIN": User("admin", "1", ("system:masters",)),
        "ALICE": User("alice", "2", ("devs", "ops")),
        "BOB": User("bob", "3"),
    }


def test_a_line_without_a_token_is_skipped_and_the_last_of_a_token_counts() -> None:
    assert parse_token_file(",nobody,1\nT,first,1\nT,second,2\n") == {"T": User("second", "2")}


def test_a_short_line_is_an_error_that_names_the_line_but_no_token(tmp_path) -> None:
    path = tmp_path / "tokens.csv"
    path.write_text("GOOD,user,1\nSECRET,user\n", encoding="utf-8")
    with pytest.raises(TokenFileError, match=r"tokens\.csv, line 2") as caught:
        load_token_file(path)
    assert "SECRET" not in str(caught.value)


def test_a_known_token_is_its_user_and_authenticated() -> None:
    user = Authenticator(parse_token_file(TOKENS)).authenticate(request("Bearer ALICE"))
    assert (user.name, user.uid, user.groups) == ("alice", "2", ("devs", "ops", "system:authenticated"))


@pytest.mark.parametrize("header", ["bearer ALICE", "BEARER ALICE more", "  Bearer ALICE "])
def test_the_scheme_may_be_written_in_any_case(header) -> None:
    assert Authenticator(parse_token_file(TOKENS)).authenticate(request(header)).name == "alice"


def test_a_wrong_token_is_a_401_even_where_anonymous_is_let_in() -> None:
    with pytest.raises(StatusError) as caught:
        Authenticator(parse_token_file(TOKENS)).authenticate(request("Bearer WRONG"))
    assert caught.value.to_status() == {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "Unauthorized",
        "reason": "Unauthorized", "code": 401}


@pytest.mark.parametrize("header", ["", "Basic YTpi", "Bearer", "Bearer "])
def test_without_a_bearer_token_a_request_is_anonymous(header) -> None:
    assert Authenticator(parse_token_file(TOKENS)).authenticate(request(header)) == ANONYMOUS
    assert ANONYMOUS.groups == ("system:unauthenticated",)


def test_anonymous_requests_can_be_turned_off() -> None:
    with pytest.raises(StatusError, match="Unauthorized"):
        Authenticator({}, anonymous=False).authenticate(request())


def test_a_server_without_users_does_not_look_at_tokens() -> None:
    assert Authenticator().authenticate(request("Bearer ANY")) == ADMIN


def test_a_client_certificate_is_a_user_and_wins_over_a_token() -> None:
    subject = (("organizationName", "devs"), ("organizationName", "ops"), ("commonName", "carol"),
               (CREDENTIAL_ID, "X509SHA256=ab"))
    user = Authenticator(parse_token_file(TOKENS)).authenticate(request("Bearer WRONG", subject))
    assert user == User("carol", "", ("devs", "ops", "system:authenticated"),
                        (("authentication.kubernetes.io/credential-id", ("X509SHA256=ab",)),))


def test_a_certificate_without_a_common_name_is_no_user() -> None:
    assert Authenticator({}).authenticate(request("", (("organizationName", "devs"),))) == ANONYMOUS
