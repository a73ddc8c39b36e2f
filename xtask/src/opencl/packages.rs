//! The published packages with OpenCL C, how they are fetched, and how their hosts compile them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A package whose files are kernels in OpenCL C.
pub(super) struct Package {
    pub name: &'static str,
    pub registry: Registry,
    /// Folder of the sources in the package, which are in subfolders too.
    pub folder: &'static str,
    /// Beginnings of the names of the files that its host compiles; all if empty.
    pub prefix: &'static str,
    /// Macros that its host defines. `$FOLDER` is the folder.
    pub defines: &'static [(&'static str, &'static str)],
    /// Every Nth file is surveyed unless the command line says otherwise.
    pub every: usize,
}

/// Where a package is published.
#[derive(Clone, Copy)]
pub(super) enum Registry {
    Debian,
    PyPi,
}

const PACKAGE: Package =
    Package { name: "", registry: Registry::Debian, folder: "", prefix: "", defines: &[], every: 1 };

pub(super) const PACKAGES: &[Package] = &[
    Package {
        name: "hashcat-data",
        folder: "usr/share/hashcat/OpenCL",
        prefix: "m",
        // For a CPU without vectors, and a kernel of hash mode 0.
        defines: &[
            ("KERNEL_STATIC", "1"),
            ("VENDOR_ID", "64"),
            ("DEVICE_TYPE", "4"),
            ("XM2S(x)", "#x"),
            ("M2S(x)", "XM2S(x)"),
            ("DGST_R0", "0"),
            ("DGST_R1", "3"),
            ("DGST_R2", "2"),
            ("DGST_R3", "1"),
            ("DGST_ELEM", "4"),
            ("KERN_TYPE", "0"),
            ("FIXED_LOCAL_SIZE", "64"),
            ("ATTACK_EXEC", "11"),
            ("ATTACK_KERN", "0"),
            ("LOCAL_MEM_TYPE", "1"),
            ("HAS_VPERM", "0"),
            ("INCLUDE_PATH", "$FOLDER"),
        ],
        every: 16,
        ..PACKAGE
    },
    Package { name: "darktable", folder: "usr/share/darktable/kernels", ..PACKAGE },
    Package {
        name: "piglit",
        folder: "usr/lib/x86_64-linux-gnu/piglit/generated_tests/cl",
        every: 8,
        ..PACKAGE
    },
    Package {
        name: "silx",
        registry: Registry::PyPi,
        folder: "silx/resources/opencl",
        defines: &[
            ("NB_COLOR", "1"),
            ("IMAGE_DIMS", "2"),
            ("FILTER_DIMS", "1"),
            ("WORKGROUP_SIZE", "128"),
            ("BLOCK_SIZE", "32"),
            ("NIMAGE", "1024"),
            ("KERNEL_SIZE", "7"),
            ("DATA_TYPE", "float"),
        ],
        ..PACKAGE
    },
    Package {
        name: "pyFAI",
        registry: Registry::PyPi,
        folder: "pyFAI/resources/openCL",
        defines: &[
            ("NBINS", "100"),
            ("NIMAGE", "1024"),
            ("NLUT", "10"),
            ("ON_CPU", "1"),
            ("WORKGROUP_SIZE", "32"),
            ("BINS", "100"),
            ("SIZE", "1024"),
            ("SHAPE_0", "32"),
            ("SHAPE_1", "32"),
        ],
        ..PACKAGE
    },
    Package {
        name: "gputools",
        registry: Registry::PyPi,
        folder: "gputools",
        defines: &[("FSIZE", "5"), ("TYPENAME", "float"), ("DTYPE", "float"), ("SIZE", "3")],
        ..PACKAGE
    },
];

/// The folder with the sources of a package, downloaded below `corpora` if it does not exist.
pub(super) fn fetch(corpora: &Path, package: &Package) -> Result<PathBuf> {
    let folder = corpora.join(package.name);
    let sources = folder.join(package.folder);
    if sources.is_dir() {
        return Ok(sources);
    }
    let partial = tempfile::Builder::new().prefix("elinvar-").tempdir()?;
    let name = package.name;
    let script = match package.registry {
        Registry::Debian => {
            format!("chmod 755 . && apt-get download -qq {name} && dpkg -x {name}_*.deb files")
        }
        Registry::PyPi => format!(
            "python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest . {name} && \
             python3 -m zipfile --extract *.whl files"
        ),
    };
    let status = Command::new("sh")
        .args(["-ec", &script])
        .current_dir(partial.path())
        .status()
        .context("running sh")?;
    if !status.success() {
        bail!("`{script}` failed");
    }
    std::fs::create_dir_all(corpora)?;
    let copied = Command::new("cp").arg("-r").arg(partial.path().join("files")).arg(&folder).status();
    if !copied.context("running cp")?.success() || !sources.is_dir() {
        bail!("{name} has no folder {}", package.folder);
    }
    Ok(sources)
}
