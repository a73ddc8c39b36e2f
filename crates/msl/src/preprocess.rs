//! The first stage: `clang -E` over the pieces as one text.

use elinvar_driver::{Diagnostic, Severity, Source};

use crate::clang::Input;
use crate::toolchain::Toolchain;
use crate::{Error, Result, clang, diagnostics, origin::Origin, stage};

/// Preprocess a source. The answer's warnings are those of the preprocessor.
pub(crate) fn run(toolchain: &Toolchain, source: &Source) -> Result<(Origin, Vec<Diagnostic>)> {
    let headers = toolchain.headers()?;
    let args = clang::preprocess_flags(&headers, &source.include_dirs, &source.defines, source.math);
    let output = stage::timed("preprocess", || clang::run(toolchain, &args, Input::File, &join(source)))?;
    let messages = diagnostics::parse(&output.stderr);
    let text = match String::from_utf8(output.stdout.clone()) {
        Ok(text) => text,
        Err(error) => {
            let valid =
                String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]).into_owned();
            let origin = Origin::new(source, valid);
            let (file, line) = origin.last_line();
            return Err(Error::Compile(vec![Diagnostic::error(file, line, 0, "the file is not UTF-8")]));
        }
    };
    let origin = Origin::new(source, text);
    let found = diagnostics::resolve(messages, &|m| diagnostics::as_written(&origin, m));
    if found.iter().any(|d| d.severity == Severity::Error) {
        return Err(Error::Compile(found));
    }
    if !output.success {
        return Err(output.unexplained());
    }
    Ok((origin, found))
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
