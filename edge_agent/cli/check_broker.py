"""The check's looks at the network: our certificates, and the way to a broker, a step at a time."""

import os
import queue
import socket
import ssl
import time
from collections.abc import Sequence
from pathlib import Path

from edge_agent.cli.finding import Finding, moment
from edge_agent.errors import EdgeError
from edge_agent.link.certificate import read_certificate
from edge_agent.link.events import Connected, Disconnected, SessionEvent
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings, TimeJudge, TlsSettings
from edge_agent.link.tls import BadDates, check_dates, tls_context

CONNECT_S = 5.0
ALERT_S = 1.0
BROKER_WAIT_S = 8.0
_WRONG_NAME = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL's x509_vfy.h
_OF_THE_FLEET = "all of [broker] credentials must come from this fleet's `server-bridge pki`"


class _Problem(Exception):
    """What stands in the way, and the way out."""

    def __init__(self, saw: str, remedy: str) -> None:
        self.saw = saw
        self.remedy = remedy
        super().__init__(saw)


def look_at_identity(tls: TlsSettings, identities: Sequence[str], at_s: float) -> Finding:
    """Whether every connection's certificate is there, is ours, has its key and is valid.

    Args:
        tls: of the fleet's broker.
        identities: the client ids of the connections.
        at_s: the time to judge by, seconds since 1970.
    """
    ends: list[float] = []
    try:
        for identity in identities:
            own = tls.own_files(identity)
            if own is not None:
                expected = identity if tls.credentials is not None else identities[0]
                ends.append(_look_at_pair(tls, expected, *own, at_s))
    except _Problem as problem:
        return Finding("identity", False, problem.saw, problem.remedy)
    except EdgeError as error:
        return Finding("identity", False, error.problem, error.hint)
    if not ends:
        return Finding("identity", True, "the broker does not ask for a certificate")
    return Finding("identity", True, f"certificates of {identities[0]!r}, valid until {moment(min(ends))}")


def _look_at_pair(tls: TlsSettings, identity: str, certificate: Path, key: Path, at_s: float) -> float:
    remedy = f"[gateway] id must be the one that the certificates were made for; {_OF_THE_FLEET}"
    for path in (certificate, key):
        if not path.is_file():
            others = sorted(one.stem for one in path.parent.glob(f"*{certificate.suffix}") if one != tls.ca)
            holds = f"; there are: {', '.join(others)}" if others else ""
            raise _Problem(f"{path} is not there{holds}", remedy)
    _require_readable(certificate, key)
    facts = read_certificate(certificate)
    if facts.common_name != identity:
        raise _Problem(f"{certificate} is of {facts.common_name!r}, this is {identity!r}", remedy)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, key)
    except OSError as error:  # ssl.SSLError is one
        raise _Problem(f"{key} is not the key of {certificate}: {error}", _OF_THE_FLEET) from None
    if not facts.begins_s <= at_s <= facts.ends_s:
        valid = f"valid from {moment(facts.begins_s)} to {moment(facts.ends_s)}"
        raise _Problem(
            f"{certificate} is {valid}; the clock says {moment(at_s)}",
            "set the clock; if it is right, make new certificates: `server-bridge pki gateway ID -o DIR`",
        )
    return facts.ends_s


def _require_readable(*paths: Path) -> None:
    for path in paths:
        if not os.access(path, os.R_OK):
            raise _Problem(
                f"this user cannot read {path}",
                "give it to the user that the agent runs as (`chown -R edge-agent: FOLDER`), and check as that user",
            )


def look_at_broker(what: str, broker: BrokerSettings, client_id: str, floor_s: float) -> Finding:
    """Name, port, TLS, certificate, MQTT: the first that is wrong.

    Args:
        what: the finding's name.
        client_id: a client of the check's own, so that no running agent is disturbed.
        floor_s: a time that has surely passed, seconds since 1970.
    """
    judged = broker.judged_by(TimeJudge(lambda: floor_s))
    try:
        with _connect(judged) as sock:
            if judged.tls is not None:
                with _handshake(sock, judged.tls, judged.host, client_id) as secured:
                    _judgement(secured, judged.tls, floor_s)
        _greet(judged, client_id)
    except _Problem as problem:
        remedy = problem.remedy.replace("[broker]", f"[{what}]")  # the finding's name is its section's
        return Finding(what, False, f"{broker.place}: {problem.saw}", remedy)
    return Finding(what, True, f"{broker.place} accepts us" + ("" if broker.tls else " (without TLS)"))


def _connect(broker: BrokerSettings) -> socket.socket:
    try:
        return socket.create_connection((broker.host, broker.port), CONNECT_S)
    except socket.gaierror:
        raise _Problem("this name is not known", "correct [broker] host, or this machine's name service") from None
    except ConnectionRefusedError:
        raise _Problem(
            "nothing listens there", "check [broker] host and port (8883 is usual with TLS), and that the broker runs"
        ) from None
    except TimeoutError:
        raise _Problem(
            f"no answer in {CONNECT_S:.0f} s", "check [broker] host, the network's routes and firewalls"
        ) from None
    except OSError as error:
        raise _Problem(str(error.strerror or error), "check [broker] host and this machine's network") from None


def _handshake(sock: socket.socket, tls: TlsSettings, host: str, client_id: str) -> ssl.SSLSocket:
    _require_readable(*(path for path in (tls.ca, *(tls.own_files(client_id) or ())) if path.exists()))
    try:
        return tls_context(tls, client_id).wrap_socket(sock, server_hostname=host)
    except ssl.SSLError as error:
        raise _refusal(error, tls) from None
    except FileNotFoundError as error:
        raise _Problem(f"{error.filename} is not there", _OF_THE_FLEET) from None
    except OSError as error:
        raise _no_tls(f"ends the handshake ({error.strerror or error})") from None


def _judgement(secured: ssl.SSLSocket, tls: TlsSettings, floor_s: float) -> None:
    """Ours of its dates, then its of our certificate: with TLS 1.3 that comes after the handshake."""
    try:
        check_dates(secured.getpeercert(), TimeJudge(lambda: floor_s), time.time())
        secured.settimeout(ALERT_S)
        if secured.recv(1) == b"":
            raise ConnectionResetError
    except TimeoutError:
        return  # it waits for what we have to say
    except BadDates as error:
        remedy = "set this machine's clock; if it is right: `server-bridge pki broker HOST...` for the broker"
        raise _Problem(str(error), remedy) from None
    except ssl.SSLError as error:
        raise _refusal(error, tls) from None
    except OSError:
        raise _Problem("it closed the connection when it saw our certificate", _OF_THE_FLEET) from None


def _no_tls(how: str) -> _Problem:
    return _Problem(f"it speaks no TLS on this port: it {how}", "[broker] port must be its TLS port, usually 8883")


def _distrust(error: ssl.SSLCertVerificationError, ca: Path) -> _Problem:
    if error.verify_code in _WRONG_NAME:
        return _Problem(
            f"its certificate is for another name: {error.verify_message}",
            "[broker] host must be a name or address that `server-bridge pki broker HOST...` was given",
        )
    return _Problem(
        f"its certificate is not signed by the authority in {ca}: {error.verify_message}",
        f"another fleet's broker, or another fleet's ca.crt: {_OF_THE_FLEET}",
    )


def _refusal(error: ssl.SSLError, tls: TlsSettings) -> _Problem:
    if isinstance(error, ssl.SSLCertVerificationError):
        return _distrust(error, tls.ca)
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if "wrong version number" in reason or "unexpected eof" in reason or "record layer" in reason:
        return _no_tls(f"answers otherwise ({reason})")
    if "alert" in reason:
        return _Problem(f"it refuses our certificate: {reason}", f"expired, revoked or unknown to it; {_OF_THE_FLEET}")
    return _Problem(f"TLS failed: {reason}", _OF_THE_FLEET)


def _greet(broker: BrokerSettings, client_id: str) -> None:
    inbox: queue.Queue[SessionEvent] = queue.Queue(100)
    session = MqttSession(broker, client_id, clean_start=True, session_expiry_s=0, inbox=inbox)
    session.start()
    until_s = time.monotonic() + BROKER_WAIT_S
    try:
        while (left_s := until_s - time.monotonic()) > 0:
            try:
                event = inbox.get(timeout=left_s)
            except queue.Empty:
                break
            if isinstance(event, Connected):
                return
            if isinstance(event, Disconnected):
                raise _Problem(event.reason, _way_out(event.reason, tls=broker.tls is not None))
    finally:
        session.stop(2.0)
    raise _Problem("it does not answer as an MQTT 5 broker", "check [broker] port: something else listens there")


def _way_out(reason: str, *, tls: bool) -> str:
    if "refused" in reason:
        return "check [broker] username and password, and that the broker's access list knows this gateway"
    if tls:
        return "look into the broker's log: it ended the connection after TLS"
    return "check that this is an MQTT port; a TLS port needs [broker] credentials"
