//! The shaders of a package as its host passes them to WebGPU: files and raw strings of Rust with compute entry points, with `#import`,
//! `#ifdef` and defined words resolved.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::packages::Package;

/// A shader.
pub(super) struct Shader {
    /// Of its file, with folders.
    pub name: String,
    pub text: String,
}

/// The shaders of a package with compute entry points, by name.
pub(super) fn shaders(package: &Package) -> Result<Vec<Shader>> {
    let folder = fetch(package)?;
    let mut files = Vec::new();
    find(&folder, &mut files)?;
    files.sort();
    let mut texts = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let path = file.strip_prefix(&folder).unwrap_or(&file).with_extension("");
        let name = path.display().to_string().replace('/', ".");
        match file.extension().is_some_and(|extension| extension == "rs") {
            false => texts.push((name, text)),
            true => {
                for (index, string) in raw_strings(&text).into_iter().enumerate() {
                    texts.push((format!("{name}.{index}"), string.to_owned()));
                }
            }
        }
    }
    let imports = imports(&texts);
    let mut shaders: Vec<Shader> = Vec::new();
    for (name, text) in texts.iter().filter(|(_, text)| text.contains("@compute")) {
        let mut seen = BTreeSet::new();
        for (suffix, words) in package.variants {
            let reader = Reader { words, defines: package.defines, imports: &imports, name };
            let text = format!("{}{}", package.prelude, reader.read(text, &mut BTreeSet::new()));
            if seen.insert(text.clone()) {
                shaders.push(Shader { name: format!("{name}{suffix}"), text });
            }
        }
    }
    Ok(shaders)
}

/// What `#import` names: the path that a file defines, or its name without folders.
fn imports(texts: &[(String, String)]) -> BTreeMap<String, &str> {
    let mut all = BTreeMap::new();
    for (name, text) in texts {
        let defined = text.lines().find_map(|line| line.trim().strip_prefix("#define_import_path"));
        let own = defined.map_or_else(|| name.rsplit('.').next().unwrap_or(name), str::trim);
        all.insert(own.trim_end_matches(';').to_owned(), text.as_str());
    }
    all
}

/// Resolves directives in a file.
struct Reader<'a> {
    words: &'a [&'a str],
    defines: &'a [(&'a str, &'a str, &'a str)],
    imports: &'a BTreeMap<String, &'a str>,
    name: &'a str,
}

impl Reader<'_> {
    fn read(&self, text: &str, imported: &mut BTreeSet<String>) -> String {
        let mut out = String::new();
        let mut active = vec![true];
        let mut prefixes = Vec::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (directive, rest) = (words.next().unwrap_or(""), words.collect::<Vec<_>>());
            let rest: Vec<&str> = rest.iter().map(|word| word.trim_end_matches(';')).collect();
            let is_active = active.iter().all(|active| *active);
            match (directive, &rest[..]) {
                ("#ifdef", [word, ..]) => active.push(self.words.contains(word)),
                ("#ifndef", [word, ..]) => active.push(!self.words.contains(word)),
                ("#else", _) => {
                    let last = active.pop().unwrap_or(true);
                    active.push(!last);
                }
                ("#endif", _) => {
                    active.pop();
                }
                ("#import", [path, more @ ..]) if is_active => {
                    if let [.., "as", name] = more {
                        prefixes.push(format!("{name}::"));
                    }
                    if let Some(text) = self.imports.get(*path)
                        && imported.insert((*path).to_owned())
                    {
                        out.push_str(&self.read(text, imported));
                    }
                }
                ("#define_import_path", _) => {}
                _ if is_active => {
                    out.push_str(&self.replaced(line));
                    out.push('\n');
                }
                _ => {}
            }
        }
        prefixes.iter().fold(out, |text, prefix| text.replace(prefix, ""))
    }

    fn replaced(&self, line: &str) -> String {
        let is_here = |part: &str| self.name.contains(part);
        let mut line = line.to_owned();
        for (part, word, text) in self.defines {
            if word.starts_with('{') && is_here(part) {
                line = line.replace(word, text);
            }
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let mut out = String::new();
        let mut rest = line.as_str();
        while let Some(start) = rest.find(is_word) {
            let (before, word) = rest.split_at(start);
            let end = word.find(|c| !is_word(c)).unwrap_or(word.len());
            let (word, behind) = word.split_at(end);
            let defined = self.defines.iter().find(|(part, name, _)| *name == word && is_here(part));
            out.push_str(before);
            out.push_str(defined.map_or(word, |(_, _, text)| text));
            rest = behind;
        }
        out + rest
    }
}

/// The raw strings in a text in Rust.
fn raw_strings(text: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("r#\"") {
        let string = &rest[start + 3..];
        let Some(end) = string.find("\"#") else { break };
        all.push(&string[..end]);
        rest = &string[end + 2..];
    }
    all
}

/// The files that may have shaders below a folder.
fn find(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "wgsl" || extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The folder with a package's sources, among those that cargo has downloaded; cargo downloads it if it is not there.
fn fetch(package: &Package) -> Result<PathBuf> {
    if let Some(folder) = downloaded(package)? {
        return Ok(folder);
    }
    let specification = format!("{}@{}", package.name, package.version);
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["info", "--quiet", "--registry", "crates-io", &specification]);
    let output = cargo.env_remove("CARGO_NET_OFFLINE").output().context("running cargo")?;
    match downloaded(package)? {
        Some(folder) => Ok(folder),
        None => {
            bail!("`cargo info {specification}` failed: {}", String::from_utf8_lossy(&output.stderr).trim())
        }
    }
}

fn downloaded(package: &Package) -> Result<Option<PathBuf>> {
    let home = match std::env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => std::env::home_dir().context("no home folder")?.join(".cargo"),
    };
    let Ok(registries) = std::fs::read_dir(home.join("registry/src")) else { return Ok(None) };
    let name = format!("{}-{}", package.name, package.version);
    let mut folders = registries.filter_map(|entry| Some(entry.ok()?.path().join(&name)));
    Ok(folders.find(|folder| folder.is_dir()))
}
