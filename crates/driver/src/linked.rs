//! Links a source with its libraries ([`Source::with_library`]), as text: the functions of libraries precede the source in one translation
//! unit, each library once, behind those that it needs itself.
//!
//! Macros of [`Source::define`] and those that a file of a library defines apply to that library only. Its functions and types are known
//! to the source, and one name stands for one thing: what two of the sources define is an error, except in a header that both include.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::{Error, MathMode, Result, Source, SourceFile, SourceLanguage};

impl Source {
    /// The source with its libraries in its [files](Source::files).
    ///
    /// # Errors
    /// `Unsupported` with the name of a library that is not text.
    pub fn linked(&self) -> Result<Cow<'_, Self>> {
        if self.libraries.is_empty() {
            return Ok(Cow::Borrowed(self));
        }
        let mut linked = Self { files: Vec::new(), libraries: Vec::new(), ..self.clone() };
        let mut linker = Linker { own: &self.defines, seen: Vec::new(), into: &mut linked };
        for library in &self.libraries {
            linker.add(library)?;
        }
        let own = self.defines.iter().map(|(name, value)| definition(name, value.as_deref())).collect();
        linker.directives(own);
        linked.files.extend(self.files.iter().cloned());
        Ok(Cow::Owned(linked))
    }
}

struct Linker<'s> {
    /// Macros of the source.
    own: &'s [(String, Option<String>)],
    /// Identities of the libraries that are in it.
    seen: Vec<[u8; 32]>,
    into: &'s mut Source,
}

impl Linker<'_> {
    fn add(&mut self, library: &Source) -> Result<()> {
        let identity = library.identity();
        if self.seen.contains(&identity) {
            return Ok(());
        }
        self.seen.push(identity);
        if library.packed.is_some() || library.metal_library.is_some() {
            let name = library.files.first().map_or("", |file| &file.name);
            return Err(Error::unsupported(format!(
                "the library `{name}` is compiled; a library of a source is Metal Shading Language text"
            )));
        }
        if library.language != SourceLanguage::Msl {
            let name = library.files.first().map_or("", |file| &file.name);
            return Err(Error::unsupported(format!(
                "the library `{name}` is OpenCL C; a library of a source is Metal Shading Language text"
            )));
        }
        for needed in &library.libraries {
            self.add(needed)?;
        }
        let before = self.own.iter().map(|(name, _)| undefinition(name));
        let given = library.defines.iter().map(|(name, value)| definition(name, value.as_deref()));
        self.directives(before.chain(given).collect());
        self.into.files.extend(library.files.iter().cloned());
        let mut names: BTreeSet<&str> = library.defines.iter().map(|(name, _)| macro_name(name)).collect();
        names.extend(library.files.iter().flat_map(|file| defined(&file.text)));
        let mut after: Vec<String> = names.into_iter().map(undefinition).collect();
        if library.files.iter().any(|file| changes_arithmetic(&file.text)) {
            after.push(arithmetic(self.into.math).into());
        }
        self.directives(after);
        for folder in &library.include_dirs {
            if !self.into.include_dirs.contains(folder) {
                self.into.include_dirs.push(folder.clone());
            }
        }
        Ok(())
    }

    /// Adds directives between files.
    fn directives(&mut self, lines: Vec<String>) {
        if !lines.is_empty() {
            self.into.files.push(SourceFile { name: "macros of libraries".into(), text: lines.concat() });
        }
    }
}

fn definition(name: &str, value: Option<&str>) -> String {
    format!("{}#define {name} {}\n", undefinition(name), value.unwrap_or("1"))
}

fn undefinition(name: &str) -> String {
    format!("#undef {}\n", macro_name(name))
}

/// The name of a macro that may be given with parameters, as `F(x)`.
fn macro_name(name: &str) -> &str {
    name.split('(').next().unwrap_or_default().trim()
}

/// Whether a text has pragmas of floating-point arithmetic, which hold to the end of a source.
fn changes_arithmetic(text: &str) -> bool {
    let is_pragma = |line: &str| line.trim_start().starts_with('#') && line.contains("pragma");
    text.lines().any(|line| is_pragma(line) && (line.contains(" fp ") || line.contains("FP_CONTRACT")))
}

/// Pragmas for the arithmetic of a math mode, behind those of a library.
fn arithmetic(math: MathMode) -> &'static str {
    match math {
        MathMode::Safe => "#pragma METAL fp math_mode(safe)\n#pragma METAL fp contract(on)\n",
        MathMode::Relaxed => "#pragma METAL fp math_mode(relaxed)\n#pragma METAL fp contract(on)\n",
        MathMode::Fast => "#pragma METAL fp math_mode(fast)\n#pragma METAL fp contract(on)\n",
    }
}

/// The macros that a text defines.
fn defined(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut in_comment = false;
    for line in text.lines() {
        let name = || {
            let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("define")?;
            let name = rest.strip_prefix(char::is_whitespace)?.trim_start();
            let is_part = |c: char| c.is_alphanumeric() || c == '_';
            Some(&name[..name.find(|c| !is_part(c)).unwrap_or(name.len())])
        };
        if !in_comment {
            names.extend(name().filter(|name| !name.is_empty()));
        }
        // The last of the two on the line decides.
        in_comment = match (line.rfind("/*"), line.rfind("*/")) {
            (Some(opens), Some(closes)) => opens > closes,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => in_comment,
        };
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_precede_the_source_once_with_their_own_macros() {
        let text = |source: &Source| -> Vec<(String, String)> {
            let linked = source.linked().expect("text");
            assert!(linked.libraries.is_empty());
            linked.files.iter().map(|file| (file.name.clone(), file.text.clone())).collect()
        };
        let macros = |text: &str| ("macros of libraries".to_owned(), text.to_owned());
        let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let base = Source::named("base", "a").include_dir("x");
        let one = Source::named("one", "#define A 1\n# define B(x) x\nb").define("N", Some("2"));
        let two = Source::named("two", "c").with_library(base.clone()).include_dir("x");
        let source = Source::named("k", "d").define("N", None).with_library(one.with_library(base));
        let source = source.with_library(two);
        let expected = [
            macros("#undef N\n"),
            file("base", "a"),
            macros("#undef N\n#undef N\n#define N 2\n"),
            file("one", "#define A 1\n# define B(x) x\nb"),
            macros("#undef A\n#undef B\n#undef N\n"),
            macros("#undef N\n"),
            file("two", "c"),
            macros("#undef N\n#define N 1\n"),
            file("k", "d"),
        ];
        assert_eq!(text(&source), expected);
        assert_eq!(source.linked().expect("text").include_dirs, [std::path::PathBuf::from("x")]);
        let plain = Source::msl("d");
        assert!(matches!(plain.linked(), Ok(Cow::Borrowed(_))));
    }

    #[test]
    fn arithmetic_of_a_library_ends_with_it() {
        let with = |library: &str| {
            let source = Source::msl("own").math(MathMode::Safe).with_library(Source::msl(library));
            let linked = source.linked().expect("text");
            linked.files.iter().map(|file| file.text.clone()).collect::<Vec<_>>()
        };
        let reset = "#pragma METAL fp math_mode(safe)\n#pragma METAL fp contract(on)\n";
        let library = "float f();\n  # pragma METAL fp contract(off)\n";
        assert_eq!(with(library), [library, reset, "own"]);
        assert_eq!(with("#pragma unroll\n// fp \n"), ["#pragma unroll\n// fp \n", "own"]);
    }

    #[test]
    fn compiled_libraries_are_named() {
        let source = Source::msl("a").with_library(Source::metal_library("b.metallib", *b"bytes"));
        let error = source.linked().unwrap_err().to_string();
        assert!(error.contains("`b.metallib` is compiled"), "{error}");
    }

    #[test]
    fn macros_are_found_outside_of_comments() {
        let text = "#define A\n  #  define B(x) (x) /* c\n#define C\n*/ \n#define D // e\n#undef F\n#defined G\n#define\n";
        assert_eq!(defined(text), ["A", "B", "D"]);
    }
}
