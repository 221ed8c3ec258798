"""A certificate authority for one machine, and for tests: it signs once
and forgets its key."""

import datetime
import ipaddress
import secrets
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

VALID = datetime.timedelta(days=365)
CLOCKS_APART = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Authority:
    """A certificate authority in memory: its key is forgotten with it, so
    that nobody signs anything more."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def new(cls) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        name = _named(f"claw's authority {secrets.token_hex(4)}")  # authorities of one name cannot be told apart
        builder = _builder(name, name, key).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(
        self,
        name: str,
        *,
        names: tuple[str, ...] = (),
        begins: datetime.timedelta = -CLOCKS_APART,
        lasts: datetime.timedelta = VALID,
    ) -> str:
        """A certificate and its key as one PEM text. names: of hosts;
        loopback's addresses stand in it, too, where there are any.

        begins: from now. An hour ago allows for clocks that are apart.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_named(name), self.certificate.subject, key, begins, lasts)
        if names:
            hosts: list[x509.GeneralName] = [x509.DNSName(host) for host in dict.fromkeys(names)]
            hosts += [x509.IPAddress(ipaddress.ip_address(address)) for address in ("127.0.0.1", "::1")]
            builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return private.decode() + certificate.public_bytes(serialization.Encoding.PEM).decode()


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    begins: datetime.timedelta = -CLOCKS_APART,
    lasts: datetime.timedelta = VALID,
) -> x509.CertificateBuilder:
    begin = datetime.datetime.now(datetime.UTC) + begins
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + lasts)
    )
