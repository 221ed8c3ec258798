"""A broker that takes clients by certificate and password only, with a user of each role and two authorities, of which one retires."""

import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from claw_r1.claw.local.kafka.node import LocalBroker
from claw_r1.claw.tls.authority import Authority
from claw_r1.claw.tls.tls_dir import TlsDir
from claw_r1.eventlog.grants import Grant, grants
from claw_r1.eventlog.kafka.acls import allow
from claw_r1.eventlog.kafka.admin import create_topics
from claw_r1.eventlog.kafka.librdkafka import admin_config
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.files import write_secret
from tests.broker import TEST_PARTITIONS

OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MORE = {
    "listener.name.clients.ssl.client.auth": "required",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
    # Kafka's own stand-in for an identity provider: it believes tokens that nobody signed.
    "listener.name.clients.oauthbearer.sasl.jaas.config": f'{OAUTH} required unsecuredLoginStringClaim_sub="broker";',
}


@dataclass
class SecuredSite:
    """The broker, its authorities, and one folder for each user's files."""

    folder: Path
    former: Authority
    latter: Authority
    broker: LocalBroker

    @classmethod
    def at(cls, folder: Path) -> "SecuredSite":
        tls = TlsDir(folder / "tls").prepared()
        site = cls(folder, Authority.new(), Authority.new(), LocalBroker(folder / "broker", tls=tls, more=MORE))
        site.trust(site.former, site.latter, issuer=site.former)
        site.broker.start()
        return site

    def trust(self, *authorities: Authority, issuer: Authority) -> None:
        """The broker's files, from its next start on."""
        tls = TlsDir(self.folder / "tls")
        tls.authority.write_text("".join(authority.pem for authority in authorities))
        write_secret(tls.server, issuer.issue("localhost", names=("localhost",)))

    def log(self, user: str, issuer: Authority | None = None) -> LogSettings:
        """The settings of a client with files of its own. user: of `let_in`, or the stack's."""
        place = self.folder / user
        place.mkdir(exist_ok=True)
        (place / "ca.pem").write_text(self.former.pem + self.latter.pem)
        write_secret(place / "client.pem", (issuer or self.former).issue(user))
        own = TlsDir(self.folder / "tls").password
        write_secret(place / "password", own.read_text() if user == "claw" else f"password of {user}")
        return LogSettings(
            bootstrap_servers=self.broker.bootstrap,
            security_protocol="SASL_SSL",
            security_ca_file=place / "ca.pem",
            security_certificate_file=place / "client.pem",
            security_username=user,
            security_password_file=place / "password",
        )

    def new_log(self) -> LogSettings:
        """A log of its own, all of it the stack's user's."""
        fresh = {"prefix": f"t{uuid.uuid4().hex[:10]}", "partitions": TEST_PARTITIONS}
        settings = self.log("claw").model_copy(update=fresh)
        create_topics(settings)
        return settings

    def of_role(self, log: LogSettings, role: str, but: Grant | None = None) -> LogSettings:
        """The settings of a new user on this log, who may do what a role needs. but: a grant that it does not get."""
        user = f"{log.prefix}-{role}" + (f"-{abs(hash(but))}" if but else "")
        self.let_in(log, user, f"password of {user}")
        allow(log, {user: [grant for grant in grants(log.catalogue(), role) if grant != but]})
        return log.model_copy(update=self.log(user).model_dump(include=set(SECURITY)))

    def let_in(self, log: LogSettings, user: str, password: str) -> None:
        """The user has this password from now on."""
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        admin = AdminClient(admin_config(log))
        done(
            list(
                admin.alter_user_scram_credentials(
                    [UserScramCredentialUpsertion(user, scram, password.encode())]
                ).values()
            )
        )


SECURITY = [name for name in LogSettings.model_fields if name.startswith("security_")]


def environment(log: LogSettings) -> dict[str, str]:
    """The access of these settings as variables."""
    values = {name: getattr(log, name) for name in SECURITY}
    return {f"CLAW_LOG_{name.upper()}": str(value) for name, value in values.items() if value}


def done(futures: Sequence["Future[Any]"]) -> None:
    for future in futures:
        future.result()
