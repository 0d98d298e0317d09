"""Who may come in? People with a name and a password; the operator's account exists from the start.

Without the latter, whoever signs up first under the operator's name would be the administrator.
"""

import os
import secrets
from pathlib import Path

from jupyterhub.auth import Authenticator
from nativeauthenticator import NativeAuthenticator
from traitlets import Unicode

SHORTEST = 12  # letters of an administrator's password


class HubAuthenticator(NativeAuthenticator):
    """Names and passwords, kept as bcrypt hashes in the hub's database."""

    admin_password_file = Unicode(config=True, help="Where the operator finds the password of a first start.")

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        for name in self.admin_users:
            self.make_admin(name, os.environ.pop("HUB_ADMIN_PASSWORD", ""))

    def get_handlers(self, app):
        """NativeAuthenticator's pages, but JupyterHub's own to sign in: the other fails in JupyterHub 6."""
        native = [page for page in super().get_handlers(app) if page[0] != "/login"]
        return [*Authenticator.get_handlers(self, app), *native]

    def make_admin(self, name, given):
        """Create the operator's account, or give it the password that was `given`."""
        if self.user_exists(name):
            if given:
                self.change_password(name, given)
            return
        self.create_user(name, given or self.new_password())

    def new_password(self):
        """A random password, which only the operator's account can read."""
        password = secrets.token_urlsafe(15)
        file = os.open(self.admin_password_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(file, "w", encoding="utf-8") as stream:
            stream.write(password + "\n")
        return password


def weakness(password):
    """Say what is wrong with an administrator's password; an empty text if nothing is."""
    common = Path(NativeAuthenticator.is_password_common.__globals__["__file__"])
    common = common.with_name("common-credentials.txt").read_text(encoding="utf-8").split("\n")
    if password.lower() in common:
        return "is one of the passwords that everybody tries first"
    if len(password) < SHORTEST:
        return f"has {len(password)} characters, and needs {SHORTEST}"
    if len(set(password)) < 5:
        return "repeats the same few characters"
    return ""
