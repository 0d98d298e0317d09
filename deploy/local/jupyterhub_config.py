"""What is this hub? JupyterHub as it comes, whose users live in sandboxes; `start.py` prepares its folder.

Change it as any JupyterHub: https://jupyterhub.readthedocs.io says what each line can be.
"""

import os
import shutil
import sys
from pathlib import Path
from urllib.parse import quote

import yaml

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from sandbox import SandboxSpawner  # noqa: E402
from sign_in import HubAuthenticator  # noqa: E402

folder = Path(os.environ["HUB_FOLDER"])
sockets = Path(os.environ["HUB_SOCKETS"])
address, port = os.environ["HUB_ADDRESS"], int(os.environ["HUB_PORT"])
certificate, key = os.environ.get("HUB_CERTIFICATE", ""), os.environ.get("HUB_KEY", "")

c = get_config()  # noqa: F821 (JupyterHub gives it)

# ---- where it listens: one public address; all else goes through sockets in a folder of its own ----

shown = f"[{address}]" if ":" in address else address
c.JupyterHub.bind_url = f"http{'s' * bool(certificate)}://{shown}:{port}"
c.JupyterHub.ssl_cert, c.JupyterHub.ssl_key = certificate, key
c.JupyterHub.subdomain_host = os.environ.get("HUB_SUBDOMAINS", "")  # each user an origin of their own
hub_socket = f"http+unix://{quote(str(sockets / 'hub' / 'hub'), safe='')}"
c.JupyterHub.hub_bind_url = c.JupyterHub.hub_connect_url = hub_socket
c.JupyterHub.hub_socket_mode = 0o666  # only the hub and sandboxes come into its folder; tokens do the rest
c.ConfigurableHTTPProxy.api_url = f"http+unix://{quote(str(sockets / 'proxy'), safe='')}"
c.ConfigurableHTTPProxy.command = [
    *("setpriv", "--pdeathsig", "KILL", "--", "node", "--require", str(HERE / "keep_alive.cjs")),
    shutil.which("configurable-http-proxy"),
]
c.ConfigurableHTTPProxy.pid_file = str(folder / "proxy.pid")
c.JupyterHub.db_url = f"sqlite:///{folder / 'hub.sqlite'}"
c.JupyterHub.cookie_secret_file = str(folder / "cookie-secret")
c.JupyterHub.cleanup_servers = True  # a hub that has ended has no sandbox left: each dies with it
c.JupyterHub.template_vars = {"announcement_login": 'New here? <a href="signup">Sign up</a> first.'}

# ---- who may come in ----

c.JupyterHub.authenticator_class = HubAuthenticator
c.HubAuthenticator.open_signup = os.environ["HUB_SIGN_UP"] == "open"
c.HubAuthenticator.username_pattern = r"[a-z0-9][a-z0-9_.@-]{0,63}\Z"  # part of a file's name and an address
c.HubAuthenticator.admin_password_file = str(folder / "admin-password")
c.HubAuthenticator.minimum_password_length = 8
c.HubAuthenticator.check_common_password = True
c.HubAuthenticator.allowed_failed_logins = 5
c.HubAuthenticator.seconds_before_next_try = 600  # its default is 0, though its help says 600
c.HubAuthenticator.allow_all = True  # whom open sign-up, or an administrator at /hub/authorize, has let in
c.Authenticator.admin_users = {os.environ["HUB_ADMIN"]}

# ---- where they work ----

c.JupyterHub.spawner_class = SandboxSpawner
c.SandboxSpawner.folder = str(folder)
c.SandboxSpawner.sockets = str(sockets)
c.SandboxSpawner.book = yaml.safe_load((HERE.parents[1] / "_config.yml").read_text())["repository"]["url"]
c.SandboxSpawner.mem_limit = os.environ["HUB_MEMORY"]
c.SandboxSpawner.processes = int(os.environ["HUB_PROCESSES"])
c.SandboxSpawner.default_url = "/lab"
c.SandboxSpawner.start_timeout = c.SandboxSpawner.http_timeout = 120
c.SandboxSpawner.poll_interval = 1  # second until a server that died is missed, and may be started again
c.JupyterHub.concurrent_spawn_limit = 4 * (os.cpu_count() or 1)
c.JupyterHub.active_server_limit = int(os.environ.get("HUB_USERS", 0))  # 0: as many as come

# ---- who has gone home: after an hour idle, kernels and terminals end, then server and sandbox ----

idle = 3600  # seconds; a busy kernel is not idle
c.JupyterHub.shutdown_on_logout = True
c.SandboxSpawner.args = [
    f"--MappingKernelManager.cull_idle_timeout={idle}",
    "--MappingKernelManager.cull_connected=True",
    f"--TerminalManager.cull_inactive_timeout={idle}",
    f"--ServerApp.shutdown_no_activity_timeout={idle}",
]
