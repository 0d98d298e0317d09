"""`make book` serves the book and JupyterLab, and leaves nothing behind."""

import re
import signal
import subprocess
import sys
import urllib.request

import pytest
import serve

WHOLE = "import pathlib, serve; serve.START_SECONDS = 600; serve.PAGES = pathlib.Path({!r}); serve.main()"


@pytest.fixture
def pages(tmp_path):
    (tmp_path / "index.html").write_text("the book")
    return tmp_path


def read(url):
    with urllib.request.urlopen(url, timeout=120) as answer:
        return answer.read().decode()


@pytest.mark.parametrize("how", serve.STOP_SIGNALS)
def test_both_answer_and_both_stop(pages, how):
    command = [sys.executable, "-c", WHOLE.format(str(pages))]
    with subprocess.Popen(command, cwd=serve.ROOT / "tools", stdout=subprocess.PIPE, text=True) as process:
        said = "".join(iter(process.stdout.readline, "Ctrl-C stops them.\n"))
        book, lab = re.findall(r"http://\S+", said)
        assert read(book) == "the book"
        assert "JupyterLab" in read(lab)
        process.send_signal(how)
        assert process.communicate(timeout=300)[0] == "stopped\n"
    assert process.returncode == 0
    assert not serve.answers(book)
    assert not serve.answers(lab)


def test_the_book_stays_served_when_jupyterlab_does_not_start(pages, monkeypatch, capfd):
    fails = [sys.executable, "-c", "print('no room left'); raise SystemExit(3)"]
    monkeypatch.setattr(serve, "lab_command", lambda port: fails)
    monkeypatch.setattr(serve, "PAGES", pages)
    with serve.book_server() as book, serve.jupyterlab() as lab:
        assert lab is None
        assert read(book) == "the book"
    assert (
        capfd.readouterr().err == "JupyterLab ended with exit code 3; the last it said:\n    no room left\n\n"
    )


def test_a_jupyterlab_that_is_silent_is_given_up(monkeypatch, capfd):
    monkeypatch.setattr(serve, "START_SECONDS", 0.5)
    monkeypatch.setattr(
        serve, "lab_command", lambda port: [sys.executable, "-c", "import time; time.sleep(60)"]
    )
    with serve.jupyterlab() as lab:
        assert lab is None
    assert capfd.readouterr().err.startswith("JupyterLab is silent after 0.5 s")


def test_a_server_that_will_not_stop_is_made_to(monkeypatch):
    monkeypatch.setattr(serve, "STOP_SECONDS", 0.5)
    deaf = "from signal import *; signal(SIGTERM, SIG_IGN); print(flush=True); pause()"
    process = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE, start_new_session=True)
    process.stdout.readline()
    serve.stop(process)
    assert process.returncode == -signal.SIGKILL
    process.stdout.close()


def test_without_a_built_book_it_says_how_to_build_it(tmp_path):
    command = [sys.executable, "-c", WHOLE.format(str(tmp_path))]
    result = subprocess.run(command, cwd=serve.ROOT / "tools", capture_output=True, text=True, timeout=300)
    assert result.returncode == 1
    assert result.stderr == "there is no built book in _build/html; `make book` builds it\n"
