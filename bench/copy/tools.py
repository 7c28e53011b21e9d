# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command of each tool, configured as its own documentation advises for a long path.

A tool that pushes runs on the source, one that pulls on the target. The data takes the same direction for all."""
import dataclasses, pathlib, typing
from urllib.parse import quote

from servers import ADDRESS, GRIDFTP_PORT, HTTP_PORT

STREAMS = 16


@dataclasses.dataclass(frozen=True)
class Call:
    """Arguments of one copy: `job` goes into the directory `target`; `servers` has the servers' files."""
    longhaul: str
    job: typing.Any
    target: pathlib.Path
    servers: pathlib.Path

    @property
    def ssh(self):
        return f"ssh -F {self.servers}/ssh_config"

    @property
    def url(self):
        return f"http://{ADDRESS['source']}:{HTTP_PORT}/{self.job.root.name}"


def longhaul(*flags):
    return lambda call: [call.longhaul, "copy", "--json", "--ssh", call.ssh, "--remote-program", call.longhaul, *flags,
                         f"{call.job.root}/", f"target:{call.target}/"]


def scp(call):
    return ["scp", "-q", "-r", "-p", "-F", f"{call.servers}/ssh_config", *call.job.entries(), f"target:{call.target}/"]


def rsync(*flags):
    return lambda call: ["rsync", "-a", *flags, "-e", call.ssh, f"{call.job.root}/", f"target:{call.target}/"]


def rclone(call):
    return ["rclone", "--config", call.servers / "rclone.conf", "copy", "--transfers", STREAMS, "--checkers", STREAMS]


def rclone_sftp(call):
    return [*rclone(call), "--sftp-chunk-size", "255k", call.job.root, f"target:{call.target}"]


def rclone_http(call):
    return [*rclone(call), "--multi-thread-streams", STREAMS, "--http-url", call.url, ":http:", call.target]


def aria2(call):
    """aria2 cannot list a directory, so the command has a list of names."""
    names = call.servers / "aria2.list"
    names.write_text("".join(f"{call.url}/{quote(path)}\n  out={path}\n" for path in call.job.paths))
    return ["aria2c", "--quiet", "--no-conf", "--file-allocation=none", "--continue=true", "--allow-overwrite=true", "--auto-save-interval=1",
            "--min-split-size=1M", f"--split={STREAMS}", f"--max-connection-per-server={STREAMS}",
            f"--max-concurrent-downloads={STREAMS}", "--dir", call.target, "--input-file", names]


def gridftp(call):
    """Many streams for one file; concurrent and pipelined transfers for many files."""
    is_tree = len(call.job.paths) > 1
    flags = ["-pp", "-cc", "8", "-r", "-cd"] if is_tree else ["-p", STREAMS]
    target = f"ftp://{ADDRESS['target']}:{GRIDFTP_PORT}{call.target}/"
    name = "" if is_tree else call.job.paths[0]
    return ["globus-url-copy", "-fast", *flags, f"file://{call.job.root}/{name}", target + name]


def bbcp(*flags):
    return lambda call: ["bbcp", *flags, "-n", "-s", STREAMS, "-w", "8m", "-T", f"{call.ssh} -x -a %I -l %U %H bbcp",
                         *["-r"] * (len(call.job.paths) > 1), *call.job.entries(), f"root@{ADDRESS['target']}:{call.target}/"]


def mscp(call):
    return ["mscp", "-q", "-F", f"{call.servers}/ssh_config", "-n", "8", "-u", "100", *call.job.entries(), f"root@target:{call.target}/"]


# Commands by the name of the tool, which may have flags of longhaul.
TOOLS = {
    "scp": scp,
    "rsync": rsync(),
    "rsync --append-verify": rsync("--partial", "--append-verify", "--inplace"),
    "rclone-sftp": rclone_sftp,
    "rclone-http": rclone_http,
    "aria2": aria2,
    "gridftp": gridftp,
    "bbcp": bbcp("-k"),
    "bbcp -a": bbcp("-k", "-a"),
    "mscp": mscp,
    "local longhaul": lambda call: [call.longhaul, "copy", "--json", f"{call.job.root}/", f"{call.target}/"],
    "local cp": lambda call: ["cp", "-a", f"{call.job.root}/.", f"{call.target}/"],
    "local rsync": lambda call: ["rsync", "-a", f"{call.job.root}/", f"{call.target}/"],
}


def command(name, call):
    """Returns the arguments of a tool, or of `longhaul FLAGS`."""
    program, *flags = name.split()
    make = longhaul(*flags) if program == "longhaul" else TOOLS[name]
    return list(map(str, make(call)))
