"""Container edits: everything a container needs, from the host's state of now, or an error that names what is missing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dra_driver.daemon.paths import DeviceNumbers, RealHostPaths
from dra_driver.daemon.settings import parse
from dra_driver.errors import DeviceError, DeviceNotReadyError, HostError, HostNotReadyError
from dra_driver.gpu.container_edits import common_edits, gpu_edits
from dra_driver.gpu.inventory import Inventory
from dra_driver.gpu.nvml import Nvml
from dra_driver.gpu.simulator import simulate
from dra_driver.gpu.simulator.driver_root import SimulatedHostPaths
from dra_driver.kubelet.cdi import ContainerEdits, DeviceNode, Mount
from dra_driver.node.main import _gpus
from dra_driver.node.settings import NodeSettings

Node = tuple[Nvml, SimulatedHostPaths]

OPTIONS = ("ro", "nosuid", "nodev", "rbind", "rprivate")
LIBRARIES = "usr/lib/x86_64-linux-gnu"
MOUNTS = {
    "libcuda.so.575.57.08": ["libcuda.so.575.57.08", "libcuda.so", "libcuda.so.1"],
    "libcudadebugger.so.575.57.08": ["libcudadebugger.so.575.57.08", "libcudadebugger.so.1"],
    "libnvcuvid.so.575.57.08": ["libnvcuvid.so.575.57.08", "libnvcuvid.so.1"],
    "libnvidia-encode.so.575.57.08": ["libnvidia-encode.so.575.57.08", "libnvidia-encode.so.1"],
    "libnvidia-gpucomp.so.575.57.08": ["libnvidia-gpucomp.so.575.57.08"],
    "libnvidia-ml.so.575.57.08": ["libnvidia-ml.so.575.57.08", "libnvidia-ml.so.1"],
    "libnvidia-nvvm.so.575.57.08": ["libnvidia-nvvm.so.575.57.08", "libnvidia-nvvm.so.4"],
    "libnvidia-opencl.so.575.57.08": ["libnvidia-opencl.so.575.57.08", "libnvidia-opencl.so.1"],
    "libnvidia-ptxjitcompiler.so.575.57.08": ["libnvidia-ptxjitcompiler.so.575.57.08", "libnvidia-ptxjitcompiler.so.1"],
}


def test_common_edits_are_exactly_these(h100: Node) -> None:
    _, paths = h100
    root = paths.driver_root

    def node(name: str, major: int, minor: int) -> DeviceNode:
        return DeviceNode(f"/dev/{name}", host_path=f"{root}/dev/{name}", type="c", major=major, minor=minor)

    assert common_edits(paths, "575.57.08") == ContainerEdits(
        env=("NVIDIA_VISIBLE_DEVICES=void",),
        device_nodes=(
            node("nvidiactl", 195, 255),
            node("nvidia-uvm", 508, 0),
            node("nvidia-uvm-tools", 508, 1),
            node("nvidia-modeset", 195, 254),
        ),
        mounts=(
            *(Mount(f"{root}/{LIBRARIES}/{host}", f"/{LIBRARIES}/{name}", OPTIONS) for host, names in MOUNTS.items() for name in names),
            Mount(f"{root}/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi", OPTIONS),
        ),
    )


def test_a_gpu_adds_its_device_node(h100: Node, inventory: Inventory) -> None:
    edits = gpu_edits(inventory.gpus[1], h100[1])
    assert msgspec.to_builtins(edits) == {
        "deviceNodes": ({"path": "/dev/nvidia1", "hostPath": f"{h100[1].dev}/nvidia1", "type": "c", "major": 195, "minor": 1},)
    }


class HostWithOwnDev(RealHostPaths, frozen=True):
    """The kernel's own /dev: a node has the same path on the host and in the container."""

    @property
    def dev(self) -> Path:
        return Path("/dev")

    def device_numbers(self, path: Path) -> DeviceNumbers:
        assert path == Path("/dev/nvidia0")
        return DeviceNumbers("c", 195, 0)


def test_a_node_in_the_host_s_own_dev_needs_no_host_path(inventory: Inventory) -> None:
    assert gpu_edits(inventory.gpus[0], HostWithOwnDev()).device_nodes == (DeviceNode("/dev/nvidia0", type="c", major=195, minor=0),)


def test_in_a_container_files_are_read_below_the_mount_and_named_by_their_host_path(h100: Node, inventory: Inventory) -> None:
    root = h100[1].driver_root
    mounted = SimulatedHostPaths(root, Path("/run/nvidia/driver"))
    expected, edits = common_edits(h100[1], "575.57.08"), common_edits(mounted, "575.57.08")
    assert [mount.host_path for mount in edits.mounts] == [mount.host_path.replace(str(root), "/run/nvidia/driver") for mount in expected.mounts]
    assert [mount.container_path for mount in edits.mounts] == [mount.container_path for mount in expected.mounts]
    assert [node.host_path for node in edits.device_nodes][:2] == ["/run/nvidia/driver/dev/nvidiactl", "/run/nvidia/driver/dev/nvidia-uvm"]
    assert gpu_edits(inventory.gpus[0], mounted).device_nodes[0].host_path == "/run/nvidia/driver/dev/nvidia0"


@pytest.mark.parametrize(
    ("seen", "host", "path", "expected"),
    [
        pytest.param("/", None, "/dev/nvidia0", "/dev/nvidia0", id="on the host itself"),
        pytest.param("/driver-root", "/", "/driver-root/dev/nvidia0", "/dev/nvidia0", id="the host's root, mounted"),
        pytest.param(
            "/driver-root", "/run/nvidia/driver", "/driver-root/usr/bin/nvidia-smi", "/run/nvidia/driver/usr/bin/nvidia-smi", id="a driver container"
        ),
        pytest.param("/driver-root", "/home/kubernetes/bin/nvidia", "/dev/nvidia0", "/dev/nvidia0", id="device nodes outside the driver root"),
    ],
)
def test_a_path_below_the_driver_root_has_another_name_on_the_host(seen: str, host: str | None, path: str, expected: str) -> None:
    assert RealHostPaths(Path(seen), Path(host) if host else None).on_host(Path(path)) == Path(expected)


def test_the_node_program_reads_below_the_mount_and_tells_the_driver_root(tmp_path: Path) -> None:
    arguments = ["--node-name=n", "--simulate=h100-sxm-80gb", "--driver-root=/run/nvidia/driver", f"--driver-root-mount={tmp_path / 'mount'}"]
    _, paths = _gpus(parse(NodeSettings, "dra-driver node", arguments, {}), real_nodes=False)
    assert paths.driver_root == tmp_path / "mount"
    assert paths.on_host(paths.dev / "nvidia0") == Path("/run/nvidia/driver/dev/nvidia0")
    _, paths = _gpus(parse(NodeSettings, "dra-driver node", [*arguments[:2], f"--driver-root={tmp_path / 'root'}"], {}), real_nodes=False)
    assert paths.on_host(paths.dev / "nvidia0") == tmp_path / "root" / "dev" / "nvidia0"


def test_a_gpu_without_its_node_is_an_error_until_the_node_is_there(h100: Node, inventory: Inventory) -> None:
    gpu, paths = inventory.gpus[0], h100[1]
    node = paths.dev / "nvidia0"
    hidden = node.rename(paths.dev / "hidden")
    with pytest.raises(DeviceNotReadyError, match=f"device gpu-0000-1b-00-0 \\({gpu.uuid}\\): device node {node}: No such file"):
        gpu_edits(gpu, paths)
    node.write_text("no stand-in")
    with pytest.raises(DeviceError, match="need a character or block device") as wrong:
        gpu_edits(gpu, paths)
    assert not wrong.value.retryable
    hidden.rename(node)
    assert gpu_edits(gpu, paths).device_nodes[0].host_path == str(node)


@pytest.mark.parametrize("name", ["nvidiactl", "nvidia-uvm"])
def test_a_missing_control_node_is_an_error(h100: Node, name: str) -> None:
    node = h100[1].dev / name
    node.unlink()
    with pytest.raises(HostNotReadyError, match=f"device node {node}: No such file"):
        common_edits(h100[1], "575.57.08")


@pytest.mark.parametrize("name", ["nvidia-uvm-tools", "nvidia-modeset"])
def test_an_optional_control_node_is_left_out_where_it_is_missing(h100: Node, name: str) -> None:
    (h100[1].dev / name).unlink()
    nodes = common_edits(h100[1], "575.57.08").device_nodes
    assert len(nodes) == 3
    assert f"/dev/{name}" not in {node.path for node in nodes}


def test_a_replaced_driver_is_seen_by_the_next_call(h100: Node) -> None:
    _, paths = h100
    before = common_edits(paths, "575.57.08")
    simulate("a100-sxm-40gb", paths.driver_root, seed="node-a")
    after = common_edits(paths, "550.163.01")
    assert len(after.mounts) == len(before.mounts)
    assert not [mount for mount in after.mounts if "575.57.08" in mount.host_path]


def test_libraries_of_another_version_than_the_loaded_driver_are_an_error(h100: Node) -> None:
    with pytest.raises(HostError, match=r"no libcuda.so.1 that leads to libcuda.so.580.65.06 in .*, but driver 580.65.06 is loaded; was it replaced"):
        common_edits(h100[1], "580.65.06")


def test_a_libcuda_without_its_link_is_an_error(h100: Node) -> None:
    (h100[1].driver_root / LIBRARIES / "libcuda.so.1").unlink()
    with pytest.raises(HostError, match=r"found no libcuda.so.1"):
        common_edits(h100[1], "575.57.08")


def test_no_driver_at_all_is_an_error_that_says_where_was_looked(h100: Node) -> None:
    (h100[1].driver_root / LIBRARIES / "libnvidia-ml.so.1").unlink()
    with pytest.raises(HostError, match=r"found no libnvidia-ml.so.1 in usr/lib64, .* below it; install the NVIDIA driver or set the driver root"):
        common_edits(h100[1], "575.57.08")


def test_files_of_others_are_not_mounted(h100: Node) -> None:
    directory = h100[1].driver_root / LIBRARIES
    before = common_edits(h100[1], "575.57.08")
    (directory / "libssl.so.3").write_text("")
    (directory / "libcuda.so.550.54.15").write_text("an older one")
    (directory / "libnvidia-ml.so.550.54.15").symlink_to("libssl.so.3")
    assert common_edits(h100[1], "575.57.08") == before
