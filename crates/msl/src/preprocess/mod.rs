//! The first stage: `clang -E` over the pieces as one text.
//!
//! Where results are kept, a source that includes files is preprocessed twice: over the folders, to learn which files it
//! may include, and over the bytes of these files. The second text is what is compiled, and depends on those bytes alone.
//! What cannot be known so (the time, `__has_include`, files that change again and again) is compiled and not kept.

pub(crate) mod dependencies;
mod output;
pub(crate) mod source_map;
pub(crate) mod vfs;

use std::ffi::OsString;

use elinvar_driver::{Diagnostic, Severity, Source};

use self::dependencies::Included;
use self::output::{Expansion, POISON, UNCERTAIN};
use self::source_map::Origin;
use self::vfs::{Folders, MAIN, PREDEFINED, World};
use crate::clang::headers::Headers;
use crate::clang::scratch::Scratch;
use crate::clang::toolchain::Toolchain;
use crate::{Error, Result, clang, diagnostics, stage};

/// How often files may change while they are looked at.
const ATTEMPTS: usize = 3;

/// A preprocessed source.
pub(crate) struct Preprocessed {
    pub origin: Origin,
    /// Those of the preprocessor.
    pub warnings: Vec<Diagnostic>,
    /// All files that decide over the text. `None` when it depends on something else as well.
    pub included: Option<Included>,
}

/// Preprocess a source.
pub(crate) fn run(toolchain: &Toolchain, source: &Source) -> Result<Preprocessed> {
    let headers = toolchain.headers()?;
    let folders = Folders::of(source, &headers)?;
    let stage = Stage { toolchain, source, headers: &headers, folders: &folders };
    stage::timed("preprocess", || stage.run())
}

struct Stage<'a> {
    toolchain: &'a Toolchain,
    source: &'a Source,
    headers: &'a Headers,
    folders: &'a Folders,
}

/// What is shown to clang, and how.
#[derive(Clone, Copy)]
struct Form<'a> {
    /// `None`: the folders.
    world: Option<&'a World>,
    /// Whether what is uncertain is made known.
    poison: bool,
    /// Whether `#embed` stays a directive.
    embeds: bool,
}

/// A run of clang.
struct Run {
    output: clang::Output,
    expansion: Expansion,
    utf8: bool,
}

impl Run {
    fn good(&self) -> bool {
        self.output.success && self.utf8 && self.expansion.stray.is_none()
    }

    /// Whether something may have been expanded that depends on more than files and text.
    fn uncertain(&self) -> bool {
        let told = |word: &&str| self.output.stderr.contains(*word);
        !self.output.success
            || self.expansion.text.contains(UNCERTAIN)
            || [UNCERTAIN].iter().chain(&POISON).any(told)
    }
}

impl Stage<'_> {
    fn run(&self) -> Result<Preprocessed> {
        let keep = self.toolchain.cache.is_on();
        for _ in 0..ATTEMPTS {
            let first = self.expand(Form { world: None, poison: keep, embeds: true })?;
            self.refuse_links(&first.expansion)?;
            if !keep && !first.expansion.embeds {
                return self.finish(first, None);
            }
            if !keep || first.uncertain() || !first.good() {
                break;
            }
            let places = self.folders.candidates(self.source, &first.expansion);
            let Some(world) = World::of(self.folders, &places) else { break };
            let own = |name: &String| std::path::Path::new(name).starts_with(self.headers.root());
            if world.present.is_empty() && first.expansion.entered.iter().all(own) {
                return self.finish(first, Some(&world));
            }
            let mut form = Form { world: Some(&world), poison: true, embeds: true };
            let mut second = self.expand(form)?;
            let known = world.knows(&self.folders.candidates(self.source, &second.expansion));
            if second.good() && second.expansion.embeds {
                form.embeds = false;
                second = self.expand(form)?;
            }
            if known && second.good() && !second.uncertain() {
                return self.finish(second, Some(&world));
            }
        }
        let last = self.expand(Form { world: None, poison: false, embeds: false })?;
        self.refuse_links(&last.expansion)?;
        self.finish(last, None)
    }

    fn expand(&self, form: Form) -> Result<Run> {
        let cannot = |e: std::io::Error| Error::Io(format!("cannot write to a temporary folder: {e}"));
        let folder = Scratch::new().map_err(cannot)?;
        let overlay = match form.world {
            Some(world) => world.overlay(self.headers, folder.path()).map_err(cannot)?,
            None => self.folders.overlay(self.headers),
        };
        let file = folder.path().join(clang::OVERLAY);
        std::fs::write(&file, overlay).map_err(cannot)?;
        let mut args = clang::preprocess_flags(self.headers, self.source);
        args.extend(["-ivfsoverlay".into(), file.into(), OsString::from("-dI")]);
        if form.embeds {
            args.extend(["-Xclang", "-dE"].map(OsString::from));
        }
        if form.poison {
            let define =
                |name: &str| [format!("-U{name}").into(), format!("-D{name}=\"{UNCERTAIN}\"").into()];
            // Before those of the source.
            args.splice(0..0, POISON.iter().flat_map(|name| define(name)));
        }
        args.push(MAIN.into());
        let output = clang::run_in(folder, self.toolchain, &args, &join(self.source))?;
        let (text, utf8) = match str::from_utf8(&output.stdout) {
            Ok(text) => (text, true),
            Err(error) => (str::from_utf8(&output.stdout[..error.valid_up_to()]).unwrap_or_default(), false),
        };
        let expansion = Expansion::of(text);
        Ok(Run { output, expansion, utf8 })
    }

    /// That no file was included that lies outside the folders, by way of a link, and none that `..` behind a link makes
    /// another in the overlay than it is on the disk.
    fn refuse_links(&self, expansion: &Expansion) -> Result<()> {
        let places = self.folders.candidates(self.source, expansion);
        let entered = expansion.entered.iter().map(|name| self.folders.virtual_path(name.as_ref()));
        let entered: Vec<_> = entered.collect();
        for place in places {
            if self.folders.forbids(&place) && (expansion.embeds || entered.contains(&place)) {
                let message = format!(
                    "`{}` is a link to a file outside the folders that the source may include from",
                    place.display()
                );
                return Err(self.refused(message));
            }
        }
        let dotted = self.folders.dotted(self.source, expansion);
        if let Some(path) = self.folders.elsewhere(&dotted) {
            let message = format!(
                "`{}`: a folder before `..` is a link or does not exist; include the file by a path without `..`",
                path.display()
            );
            return Err(self.refused(message));
        }
        Ok(())
    }

    fn refused(&self, message: String) -> Error {
        let file = self.source.pieces.first().map(|piece| piece.name.clone()).unwrap_or_default();
        Error::Compile(vec![Diagnostic::error(file, 0, 0, message)])
    }

    fn finish(&self, run: Run, world: Option<&World>) -> Result<Preprocessed> {
        let Run { output, expansion, utf8 } = run;
        let dotted = self.folders.dotted(self.source, &expansion);
        let entered: Vec<String> = expansion.entered.iter().cloned().collect();
        let texts = entered.into_iter().filter_map(|name| {
            let text = match world {
                Some(world) => world.text(&self.folders.virtual_path(name.as_ref()))?.to_owned(),
                None => std::fs::read_to_string(self.folders.find(&name)?).ok()?,
            };
            Some((name, text))
        });
        let origin = Origin::new(self.source, expansion.text, texts.collect());
        if !utf8 {
            let (file, line) = origin.last_line();
            return Err(Error::Compile(vec![Diagnostic::error(file, line, 0, "the file is not UTF-8")]));
        }
        let messages = diagnostics::parse_named(&output.stderr, origin.files());
        let own = |m: &diagnostics::Message| {
            m.file == PREDEFINED || std::path::Path::new(&m.file).starts_with(self.headers.root())
        };
        let place = |m: &diagnostics::Message| (!own(m)).then(|| diagnostics::as_written(&origin, m));
        let found = diagnostics::resolve(messages, &place);
        if found.iter().any(|d| d.severity == Severity::Error) {
            return Err(Error::Compile(found));
        }
        if !output.success {
            return Err(output.unexplained());
        }
        if let Some(at) = expansion.stray {
            let p = origin.place(at);
            let message = "a line begins with a `#` that a macro made; a directive cannot come from a macro";
            let error = Diagnostic::error(p.file, p.line, p.column, message);
            return Err(Error::Compile(vec![Diagnostic { source_line: p.source_line, ..error }]));
        }
        Ok(Preprocessed {
            origin,
            warnings: found,
            included: world.and_then(|world| Included::of(world, dotted)),
        })
    }
}

/// The pieces behind one another, each with its name and from its line 1.
fn join(source: &Source) -> String {
    let mut text = String::new();
    for piece in &source.pieces {
        text.push_str(&format!(
            "#line 1 \"{}\"\n{}\n",
            escape(&piece.name),
            piece.text.trim_start_matches('\u{feff}')
        ));
    }
    text
}

/// A file name as it stands in a string literal.
pub(crate) fn escape(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_their_own_lines() {
        let mut source = Source::named("a \"b\".metal", "int a;");
        source.pieces.push(elinvar_driver::Piece { name: "c".into(), text: "int c;\n".into() });
        assert_eq!(join(&source), "#line 1 \"a \\\"b\\\".metal\"\nint a;\n#line 1 \"c\"\nint c;\n\n");
    }
}
