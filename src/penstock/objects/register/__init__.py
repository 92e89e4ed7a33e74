"""One object under compare-and-swap, with a fence: the basis of all coordination between processes."""

from penstock.objects.register.format import RegisterFormat
from penstock.objects.register.register import Register, RegisterPolicy, Token
from penstock.objects.register.stamp import BytesCodec, Codec, Stamped, StampedFormat

__all__ = ["BytesCodec", "Codec", "Register", "RegisterFormat", "RegisterPolicy", "Stamped", "StampedFormat", "Token"]
