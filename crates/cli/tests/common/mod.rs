//! Runs the built `elinvar` and creates its input files.

#![allow(dead_code)] // each test crate uses its part

use std::path::{Path, PathBuf};
use std::process::Command;

use npyz::WriterBuilder;

/// Result of a run of the command.
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The JSON on standard output.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr))
    }

    /// Fails unless the exit code is `code` and standard error contains all the texts.
    pub fn expect(&self, code: i32, texts: &[&str]) {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        for text in texts {
            assert!(self.stderr.contains(text), "`{text}` is not in: {}", self.stderr);
        }
    }
}

/// Runs `elinvar` with these arguments.
pub fn elinvar(words: &[&str]) -> Ended {
    elinvar_with(words, &[])
}

/// Runs `elinvar` with these arguments and environment variables.
pub fn elinvar_with(words: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elinvar"));
    let output = command.args(words).envs(variables.iter().copied()).output().expect("elinvar runs");
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// Path of an example's Metal file.
pub fn example(name: &str) -> String {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name).with_extension("metal");
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// A folder that is removed at the end of the test.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `@…/name.npy`.
    pub fn value(&self, name: &str) -> String {
        format!("@{}", self.file(name).display())
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.file(name);
        std::fs::write(&path, content).expect("a written file");
        path.to_str().expect("a path in UTF-8").to_owned()
    }

    /// Writes an array in NumPy's format.
    pub fn array<T: npyz::AutoSerialize + Clone>(&self, name: &str, shape: &[u64], values: &[T]) {
        let file = std::fs::File::create(self.file(name)).expect("a new file");
        let options = npyz::WriteOptions::new().default_dtype().shape(shape);
        let mut writer = options.writer(std::io::BufWriter::new(file)).begin_nd().expect("a header");
        writer.extend(values.iter().cloned()).expect("data");
        writer.finish().expect("an end");
    }

    /// Shape and values of an array file.
    pub fn read<T: npyz::Deserialize>(&self, name: &str) -> (Vec<u64>, Vec<T>) {
        let bytes = std::fs::read(self.file(name)).expect("the file");
        let npy = npyz::NpyFile::new(&bytes[..]).expect("a .npy file");
        (npy.shape().to_vec(), npy.into_vec().expect("values of the type"))
    }
}
