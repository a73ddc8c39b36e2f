//! [`Graph`]: the packages of a build, from `cargo metadata`, and which of them use Metal.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{cargo, output_of};
use crate::failure::{Failure, Result};

/// The packages of a build.
#[derive(Deserialize)]
pub struct Graph {
    packages: Vec<Package>,
    workspace_default_members: Vec<String>,
    #[serde(rename = "target_directory")]
    pub target: PathBuf,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// The cfg condition of the dependency.
    target: Option<String>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

/// Whether this is one of the crates that bind Apple's libraries, which are always built as for macOS.
pub fn is_binding(name: &str) -> bool {
    name.starts_with("objc2") || matches!(name, "block2" | "dispatch2")
}

impl Graph {
    pub fn read(manifest: &Path) -> Result<Self> {
        let mut cargo = cargo();
        cargo.args(["metadata", "--format-version", "1", "--manifest-path"]).arg(manifest);
        let text = output_of(cargo, "cargo metadata")?;
        Self::parse(&text)
    }

    fn parse(text: &[u8]) -> Result<Self> {
        serde_json::from_slice(text).map_err(|error| Failure::input(format!("cargo metadata: {error}")))
    }

    /// Names of the crates to build as for macOS: those of the package itself, and those of every package that uses a binding.
    pub fn named(&self) -> BTreeSet<String> {
        self.apple()
            .flat_map(|package| &package.targets)
            .map(|target| target.name.replace('-', "_"))
            .collect()
    }

    /// Whether one of them has dependencies that are conditional on an Apple target.
    pub fn depends_by_target(&self) -> bool {
        let conditions = |package: &Package| {
            package.dependencies.iter().any(|d| d.target.as_deref().is_some_and(is_apple))
        };
        self.apple().any(conditions)
    }

    fn apple(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| {
            let uses = package.dependencies.iter().any(|dependency| is_binding(&dependency.name));
            !is_binding(&package.name) && (uses || self.workspace_default_members.contains(&package.id))
        })
    }
}

fn is_apple(condition: &str) -> bool {
    condition.contains("\"macos\"") || condition.contains("\"apple\"") || condition.contains("-apple-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &str) -> String {
        format!(
            r#"{{"id":"{name} 1.0","name":"{name}","dependencies":[{dependencies}],"targets":[{{"name":"{name}"}}]}}"#
        )
    }

    fn graph(packages: &[String]) -> Graph {
        let text = format!(
            r#"{{"packages":[{}],"workspace_default_members":["my-app 1.0"],"target_directory":"/t"}}"#,
            packages.join(",")
        );
        Graph::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn crates_that_use_a_binding_are_named() {
        let graph = graph(&[
            package("my-app", r#"{"name":"kernels","target":null}"#),
            package("kernels", r#"{"name":"objc2-metal","target":null},{"name":"half","target":null}"#),
            package("half", r#"{"name":"core-foundation","target":"cfg(target_os = \"macos\")"}"#),
            package("objc2-metal", r#"{"name":"objc2","target":"cfg(target_vendor = \"apple\")"}"#),
        ]);
        assert_eq!(graph.named(), ["kernels", "my_app"].map(String::from).into());
        assert!(!graph.depends_by_target(), "only conditions of the named crates count");
        assert_eq!(graph.target, Path::new("/t"));
    }

    #[test]
    fn a_condition_on_the_system_is_seen() {
        for (condition, expected) in [
            (r#"cfg(target_os = \"macos\")"#, true),
            (r#"cfg(any(target_vendor = \"apple\", windows))"#, true),
            ("aarch64-apple-darwin", true),
            ("cfg(unix)", false),
        ] {
            let graph = graph(&[package("my-app", &format!(r#"{{"name":"x","target":"{condition}"}}"#))]);
            assert_eq!(graph.depends_by_target(), expected, "{condition}");
        }
    }

    #[test]
    fn what_cargo_prints_is_checked() {
        let error = Graph::parse(b"{}").err().unwrap();
        assert!(error.to_string().starts_with("cargo metadata: missing field"), "{error}");
    }
}
