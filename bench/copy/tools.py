# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command of each tool, configured as its own documentation advises for a long path.

A tool that pushes runs on the source, one that pulls on the target. The data takes the same direction for all."""
import dataclasses, shutil, subprocess, typing
from urllib.parse import quote

from testbed import ADDRESS, GRIDFTP_PORT, HTTP_PORT, SOURCE, TARGET

STREAMS = 16


@dataclasses.dataclass(frozen=True)
class Tool:
    """A tool. `command(call)` returns its arguments, for a resumed copy too. `programs` must be on this machine."""
    name: str
    host: str
    programs: tuple
    command: typing.Callable


@dataclasses.dataclass(frozen=True)
class Call:
    """Arguments of one copy: `job` goes into the directory `target`; `directory` has the servers' files."""
    job: object
    target: object
    directory: object
    options: object

    @property
    def ssh(self):
        return f"ssh -F {self.directory}/ssh_config"

    @property
    def url(self):
        return f"http://{ADDRESS[SOURCE]}:{HTTP_PORT}/{self.job.name}"


def longhaul(*flags):
    def command(call):
        program = call.options.longhaul
        return [program, "copy", "--json", "--ssh", call.ssh, "--remote-program", program, *flags,
                f"{call.job.root}/", f"{TARGET}:{call.target}/"]
    return command


def local_longhaul(*flags):
    return lambda call: [call.options.longhaul, "copy", "--json", *flags, f"{call.job.root}/", f"{call.target}/"]


def scp(call):
    return ["scp", "-q", "-r", "-p", "-F", f"{call.directory}/ssh_config", *call.job.entries(), f"{TARGET}:{call.target}/"]


def rsync(*flags):
    return lambda call: ["rsync", "-a", *flags, "-e", call.ssh, f"{call.job.root}/", f"{TARGET}:{call.target}/"]


def rclone(call):
    return ["rclone", "--config", call.directory / "rclone.conf", "copy", "--transfers", str(STREAMS), "--checkers", str(STREAMS)]


def rclone_sftp(call):
    return rclone(call) + ["--sftp-chunk-size", "255k", call.job.root, f"{TARGET}:{call.target}"]


def rclone_http(call):
    return rclone(call) + ["--multi-thread-streams", str(STREAMS), "--http-url", call.url, ":http:", call.target]


def aria2(call):
    """aria2 cannot list a directory, so the command has a list of names."""
    names = call.directory / "aria2.list"
    names.write_text("".join(f"{call.url}/{quote(path)}\n  out={path}\n" for path in call.job.paths()))
    return ["aria2c", "--quiet", "--no-conf", "--file-allocation=none", "--continue=true", "--allow-overwrite=true", "--auto-save-interval=1",
            "--min-split-size=1M", f"--split={STREAMS}", f"--max-connection-per-server={STREAMS}",
            f"--max-concurrent-downloads={STREAMS}", "--dir", call.target, "--input-file", names]


def gridftp(call):
    """Many streams for one file; concurrent and pipelined transfers for many files."""
    flags = ["-pp", "-cc", "8", "-r", "-cd"] if call.job.files > 1 else ["-p", str(STREAMS)]
    target = f"ftp://{ADDRESS[TARGET]}:{GRIDFTP_PORT}{call.target}/"
    name = "" if call.job.files > 1 else call.job.paths()[0]
    return ["globus-url-copy", "-fast", *flags, f"file://{call.job.root}/{name}", target + name]


def bbcp(*flags):
    def command(call):
        program = call.options.bbcp
        return [program, *flags, "-n", "-s", str(STREAMS), "-w", "8m", "-S", program,
                "-T", f"{call.ssh} -x -a %I -l %U %H {program}", *["-r"] * (call.job.files > 1),
                *call.job.entries(), f"root@{ADDRESS[TARGET]}:{call.target}/"]
    return command


def mscp(call):
    return [call.options.mscp, "-q", "-F", f"{call.directory}/ssh_config", "-n", "8", "-u", "100", *call.job.entries(),
            f"root@{TARGET}:{call.target}/"]


def local_tool(program):
    """Commands of the tools that copy locally."""
    commands = {"cp": lambda call: ["cp", "-a", f"{call.job.root}/.", f"{call.target}/"],
                "rsync": lambda call: ["rsync", "-a", f"{call.job.root}/", f"{call.target}/"]}
    return commands[program]


PEERS = [
    Tool("scp", SOURCE, ("scp",), scp),
    Tool("rsync", SOURCE, ("rsync",), rsync()),
    Tool("rclone-sftp", SOURCE, ("rclone",), rclone_sftp),
    Tool("rclone-http", TARGET, ("rclone", "nginx"), rclone_http),
    Tool("aria2", TARGET, ("aria2c", "nginx"), aria2),
    Tool("gridftp", SOURCE, ("globus-url-copy", "globus-gridftp-server"), gridftp),
    Tool("bbcp", SOURCE, ("bbcp",), bbcp("-k")),
    Tool("mscp", SOURCE, ("mscp",), mscp),
]
LONGHAUL = [
    Tool("longhaul", SOURCE, ("longhaul",), longhaul()),
    Tool(f"longhaul-{STREAMS}", SOURCE, ("longhaul",), longhaul("--streams", str(STREAMS))),
]
LOCAL = [Tool("longhaul", SOURCE, ("longhaul",), local_longhaul()),
         Tool("cp -a", SOURCE, ("cp",), local_tool("cp")), Tool("rsync -a", SOURCE, ("rsync",), local_tool("rsync"))]


def by_name(name):
    return next(tool for tool in LONGHAUL + PEERS if tool.name == name)


def find(program, options):
    """The path of a program, or None. Options have the paths of those that no distribution has."""
    paths = {"longhaul": options.longhaul, "bbcp": options.bbcp, "mscp": options.mscp}
    return shutil.which(paths.get(program) or program)


def has_flags(options, *flags):
    """Whether this build of longhaul copy has these flags."""
    help_text = subprocess.run([options.longhaul, "copy", "--help"], capture_output=True, text=True).stdout
    return all(flag in help_text for flag in flags)
