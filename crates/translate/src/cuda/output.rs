//! Puts the program together: headers, helpers, types, functions; and `#line` directives where the next line is not the next one of its file.

use std::collections::BTreeSet;

use super::builtins::HELPERS;
use super::program::Program;
use super::render::Row;
use crate::opencl::text::Text;

/// A declaration at file scope.
#[derive(Debug)]
pub(super) struct Part {
    pub rows: Vec<Row>,
}

/// The output.
pub(super) struct Lines<'a> {
    out: String,
    text: &'a Text,
    directives: bool,
    /// File and number of the next line, if it needs no directive.
    expected: Option<(usize, u32)>,
}

impl<'a> Lines<'a> {
    pub fn write(
        text: &'a Text,
        program: &Program<'_>,
        directives: bool,
        helpers: &[&str],
        includes: &BTreeSet<&str>,
        parts: &[Part],
    ) -> String {
        let mut out = String::from("#include <metal_stdlib>\n");
        includes.iter().for_each(|name| out.push_str(&format!("#include <{name}>\n")));
        out.push_str("using namespace metal;\n");
        // CUDA's default is IEEE 754's arithmetic; Metal's is fast math. Contraction would make results depend on the compiler.
        out.push_str("#pragma METAL fp math_mode(safe)\n#pragma METAL fp contract(off)\n");
        for (name, helper) in HELPERS {
            if helpers.contains(name) {
                out.push_str(&format!("\n{}\n", helper.trim_end()));
            }
        }
        let mut lines = Self { out, text, directives, expected: None };
        // What comes from headers has no lines, so it is first among the functions that need nothing else.
        for part in parts {
            lines.out.push('\n');
            lines.expected = lines.expected.map(|(file, line)| (file, line + 1));
            for row in &part.rows {
                lines.row(program, row);
            }
        }
        lines.out
    }

    fn row(&mut self, program: &Program<'_>, row: &Row) {
        let origin = row
            .offset
            .filter(|offset| !program.is_header_at(*offset))
            .and_then(|offset| self.text.origin(self.text.line_of(offset)));
        let is_header = row.offset.is_some_and(|offset| program.is_header_at(offset));
        if is_header && self.directives && self.expected.is_some() {
            self.out.push_str("#line 1 \"CUDA's headers\"\n");
            self.expected = None;
        }
        if let (true, Some((file, line))) = (self.directives, origin)
            && origin != self.expected
        {
            let name = self.text.files.get(file).map_or("", String::as_str);
            let name = name.replace('\\', "\\\\").replace('"', "\\\"");
            self.out.push_str(&format!("#line {line} \"{name}\"\n"));
            self.expected = origin;
        }
        self.out.push_str(row.text.trim_end());
        self.out.push('\n');
        self.expected = self.expected.map(|(file, line)| (file, line + 1));
    }
}
