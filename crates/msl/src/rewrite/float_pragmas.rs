//! `#pragma METAL fp math_mode(MODE)` and `#pragma METAL fp contract(MODE)`, as clang's pragmas.
//!
//! Both hold to the end of the block or, at file scope, of the source. In safe math clang forms FMAs within an expression again, so a mode
//! of contraction that holds is repeated.

/// Modes of contraction that hold: the number of scopes around the pragma, and the mode.
#[derive(Default)]
pub(super) struct FloatPragmas(Vec<(usize, String)>);

impl FloatPragmas {
    /// Ends the modes of scopes that are closed.
    pub fn close(&mut self, scopes: usize) {
        self.0.retain(|(depth, _)| *depth <= scopes);
    }

    /// What clang reads in place of a directive, or what is wrong with it. `None` for other directives.
    pub fn replace(&mut self, directive: &str, scopes: usize) -> Option<Result<String, String>> {
        let words = words(directive);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words[..] {
            ["pragma", "clang", "fp", "contract", mode] => self.0.push((scopes, mode.to_owned())),
            ["pragma", "STDC", "FP_CONTRACT", mode] => self.0.push((scopes, mode.to_lowercase())),
            ["pragma", "METAL", "fp", ref options @ ..] => {
                let mut made = String::new();
                for option in options.chunks(2) {
                    match self.option(option, scopes) {
                        Ok(text) => made.push_str(&text),
                        Err(message) => return Some(Err(message)),
                    }
                }
                return Some(Ok(made));
            }
            _ => {}
        }
        None
    }

    fn option(&mut self, option: &[&str], scopes: usize) -> Result<String, String> {
        let pragma = |text: &str| format!("_Pragma(\"{text}\") ");
        let contract = |mode: &str| pragma(&format!("clang fp contract({mode})"));
        match *option {
            ["contract", mode @ ("off" | "on" | "fast")] => {
                self.0.push((scopes, mode.to_owned()));
                Ok(contract(mode))
            }
            ["math_mode", "safe"] => {
                let held = self.0.last().map(|(_, mode)| contract(mode)).unwrap_or_default();
                Ok(pragma("float_control(precise, on)") + &held)
            }
            // Contraction across expressions is allowed, unless the source forbids it.
            ["math_mode", "relaxed" | "fast"] => {
                let held = self.0.last().map_or("fast", |(_, mode)| mode);
                Ok(pragma("clang fp reassociate(on)") + &pragma("clang fp reciprocal(on)") + &contract(held))
            }
            ["math_mode", mode] => {
                Err(format!("unknown mode `{mode}` of `math_mode`, which may be safe, relaxed or fast"))
            }
            ["contract", mode] => {
                Err(format!("unknown mode `{mode}` of `contract`, which may be off, on or fast"))
            }
            [name, ..] => {
                Err(format!("`#pragma METAL fp` has no option `{name}` with a mode in parentheses"))
            }
            [] => Ok(String::new()),
        }
    }
}

/// Words of a directive, without the punctuation between them.
fn words(directive: &str) -> Vec<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    directive.split(|c| !is_part(c)).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRECISE: &str = "_Pragma(\"float_control(precise, on)\") ";
    const OFF: &str = "_Pragma(\"clang fp contract(off)\") ";

    #[test]
    fn modes() {
        let mut pragmas = FloatPragmas::default();
        let mut made = |line: &str, scopes| pragmas.replace(line, scopes);
        assert_eq!(made("#pragma METAL fp math_mode(safe)", 0), Some(Ok(PRECISE.into())));
        assert_eq!(made("# pragma METAL fp contract( off )", 0), Some(Ok(OFF.into())));
        assert_eq!(made("#pragma METAL fp math_mode(safe)", 1), Some(Ok(format!("{PRECISE}{OFF}"))));
        assert_eq!(
            made("#pragma METAL fp contract(off) math_mode(safe)", 0),
            Some(Ok(format!("{OFF}{PRECISE}{OFF}")))
        );
        for other in [
            "#pragma METAL internals : enable",
            "#pragma unroll",
            "# 3 \"a\"",
            "#pragma clang fp contract(on)",
        ] {
            assert_eq!(made(other, 0), None, "{other}");
        }
        for wrong in ["math_mode(quick)", "contract(maybe)", "rounding(up)", "math_mode"] {
            assert!(matches!(made(&format!("#pragma METAL fp {wrong}"), 0), Some(Err(_))), "{wrong}");
        }
    }

    #[test]
    fn a_mode_ends_with_its_block() {
        let mut pragmas = FloatPragmas::default();
        assert!(pragmas.replace("#pragma clang fp contract(off)", 2).is_none());
        pragmas.close(2);
        assert_eq!(
            pragmas.replace("#pragma METAL fp math_mode(safe)", 2),
            Some(Ok(format!("{PRECISE}{OFF}")))
        );
        pragmas.close(1);
        assert_eq!(pragmas.replace("#pragma METAL fp math_mode(safe)", 1), Some(Ok(PRECISE.into())));
    }
}
