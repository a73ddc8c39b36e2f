//! LLVM IR text to loaded machine code: `clang -c`, a linker, and the loader.
//!
//! The linker is called directly, since `clang -shared` costs many times as much as the link itself:
//! `ELINVAR_LD` if set, else `ld.lld-NN` (newest first), `ld.lld`, `ld`. Where none is found, and on
//! Apple systems, whose linker needs to be told about the platform, clang links. Files live in a
//! private folder that is gone once the object is loaded; when a tool fails, or breaks a limit of
//! `elinvar_msl::process`, the folder stays and the error says how to repeat the call.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use elinvar_cache::KeyBuilder;
use elinvar_driver::{Error, Result};
use elinvar_msl::process::{self, Failure, Limits};
use elinvar_msl::scratch::Scratch;
use elinvar_msl::stage;

use crate::host;
use crate::loader::Code;
use crate::target::Target;

/// Oldest and newest major version looked for in `ld.lld-NN`.
const VERSIONS: std::ops::RangeInclusive<u32> = 14..=30;

/// The files of a run.
const TEXT: &str = "kernel.ll";
const OBJECT: &str = "kernel.o";
const SHARED: &str = "kernel.so";

const PRELUDE: &str = include_str!("prelude.ll");

/// Bytes of text from which on clang's instruction schedulers, whose time grows with the square of a block's
/// memory accesses, are left out.
const LONG_TEXT: usize = 500_000;
const FOR_LONG_TEXT: [&str; 4] = ["-mllvm", "-enable-misched=false", "-mllvm", "-disable-post-ra"];

/// The tools and options with which kernels are built.
pub struct Codegen {
    clang: PathBuf,
    /// `None`: clang links.
    linker: Option<PathBuf>,
    target: Target,
    /// Which processor this machine has.
    machine: &'static str,
}

impl Codegen {
    /// Compile for a target with `clang`.
    pub fn new(clang: impl Into<PathBuf>, target: Target) -> Self {
        Self { clang: clang.into(), linker: find_linker(), target, machine: host::processor_identity() }
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Add what decides, beside the text, how an object is built: tools, options and processor.
    pub(crate) fn identify(&self, key: KeyBuilder) -> KeyBuilder {
        let key = key.program(&self.clang).text(&self.target.processor).number(self.target.lanes().into());
        let key = key.number(self.target.optimized.into()).text(self.machine);
        match &self.linker {
            Some(linker) => key.program(linker),
            None => key.text("clang links"),
        }
    }

    /// Build `ir`, which defines `symbol`, and load it. With the object's bytes, which can be loaded again.
    pub(crate) fn build(&self, ir: &str, symbol: &str) -> Result<(Code, Vec<u8>)> {
        self.build_then(ir, |shared| {
            let object = read_object(shared)?;
            Ok((stage::timed("load", || Code::from_file(shared, &object, symbol))?, object))
        })
    }

    /// Build `ir` for another process: the object's bytes, which are not loaded here.
    pub(crate) fn object(&self, ir: &str) -> Result<Vec<u8>> {
        self.build_then(ir, read_object)
    }

    /// Build `ir`, which defines all these symbols, and load it.
    ///
    /// # Errors
    /// `Environment` when a tool fails, with its call and what it said, or a symbol is missing.
    pub fn build_all(&self, ir: &str, symbols: &[String]) -> Result<Vec<Code>> {
        self.build_then(ir, |shared| symbols.iter().map(|symbol| Code::load(shared, symbol)).collect())
    }

    fn build_then<T>(&self, ir: &str, load: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        let folder = Scratch::new().map_err(|error| {
            Error::Environment(format!("cannot make a folder in {}: {error}", std::env::temp_dir().display()))
        })?;
        let built = self.build_in(folder.path(), ir).and_then(|shared| load(&shared));
        built.map_err(|error| match error {
            Error::Environment(why) => Error::Environment(format!("{why}\n{}", folder.keep(&[TEXT]))),
            other => other,
        })
    }

    fn build_in(&self, folder: &Path, ir: &str) -> Result<PathBuf> {
        let text = folder.join(TEXT);
        std::fs::write(&text, with_prelude(ir).as_bytes())
            .map_err(|error| Error::Environment(format!("cannot write {}: {error}", text.display())))?;

        let mut compile = tool_in(folder, &self.clang)?;
        let level = if self.target.optimized { "-O3" } else { "-O0" };
        compile.args(["-c", level, "-fPIC", "-ffp-contract=on", "-Wno-override-module"]);
        compile.args(self.target.processor.split(' '));
        if ir.len() > LONG_TEXT {
            compile.args(FOR_LONG_TEXT);
        }
        compile.args(["-x", "ir"]).arg(&text).args(["-o", OBJECT]);
        stage::timed("codegen", || run(compile))?;

        let mut link = tool_in(folder, self.linker.as_ref().unwrap_or(&self.clang))?;
        if cfg!(target_vendor = "apple") {
            link.args(["-undefined", "dynamic_lookup"]);
        }
        link.args(["-shared", OBJECT, "-o", SHARED]);
        stage::timed("link", || run(link))?;
        Ok(folder.join(SHARED))
    }
}

/// A tool that works in a folder, so that its outputs are names alone: LLVM takes `%` in the path of one for a placeholder.
fn tool_in(folder: &Path, program: &Path) -> Result<Command> {
    let cannot = |error| Error::Environment(format!("cannot find {}: {error}", program.display()));
    // A name alone is looked for on the PATH; a path is relative to the folder of this process.
    let searched = program.components().count() == 1;
    let program = if searched { program.to_owned() } else { std::path::absolute(program).map_err(cannot)? };
    let mut command = Command::new(program);
    command.current_dir(folder);
    Ok(command)
}

fn read_object(shared: &Path) -> Result<Vec<u8>> {
    std::fs::read(shared)
        .map_err(|error| Error::Environment(format!("cannot read {}: {error}", shared.display())))
}

/// The text with the conversions it may need. Other architectures have them as instructions.
fn with_prelude(ir: &str) -> Cow<'_, str> {
    let needed = cfg!(target_arch = "x86_64") && (ir.contains("half") || ir.contains("bfloat"));
    if needed { Cow::Owned(format!("{ir}\n{PRELUDE}")) } else { Cow::Borrowed(ir) }
}

/// Run a tool; its failure is an error with what it said and how it was called.
fn run(mut command: Command) -> Result<()> {
    let call = process::quoted(std::iter::once(command.get_program()).chain(command.get_args()));
    let limits = Limits::from_env().map_err(Error::Environment)?;
    let why = match process::run(command.stdin(Stdio::null()), &limits) {
        Ok(finished) if finished.status.success() => return Ok(()),
        Ok(finished) => {
            let said = String::from_utf8_lossy(&finished.stderr);
            format!("`{call}` failed ({}):\n{}", finished.status, said.trim_end())
        }
        Err(Failure::Start(error)) => format!("cannot run `{call}`: {error}"),
        Err(Failure::Killed(why)) => format!("`{call}` {why}"),
    };
    Err(Error::Environment(why))
}

fn find_linker() -> Option<PathBuf> {
    if let Some(chosen) = std::env::var_os("ELINVAR_LD") {
        return Some(chosen.into());
    }
    if cfg!(target_vendor = "apple") {
        return None;
    }
    let versions = VERSIONS.rev().map(|version| format!("ld.lld-{version}"));
    versions.chain(["ld.lld".into(), "ld".into()]).find_map(|name| on_path(&name.into()))
}

fn on_path(program: &OsString) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn failure(codegen: &Codegen, ir: &str) -> String {
        match codegen.build(ir, "elinvar_threadgroups") {
            Err(Error::Environment(message)) => message,
            Err(other) => panic!("another kind of error: {other}"),
            Ok(_) => panic!("built"),
        }
    }

    /// The text in the folder that the message names and that must still be there; removes it.
    fn take_kept_file(message: &str) -> String {
        let folder = std::env::temp_dir().join("elinvar-run-").display().to_string();
        let at = message.find(&folder).unwrap();
        let len = message[at + folder.len()..].find(['/', '\n']);
        let end = len.map_or(message.len(), |len| at + folder.len() + len);
        let folder = Path::new(&message[at..end]);
        let content = std::fs::read_to_string(folder.join("kernel.ll")).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        content
    }

    #[test]
    fn wrong_ir_is_an_error_with_the_call_and_keeps_the_file() {
        let message = failure(&testing::codegen(), "define void @f() {\n  ret i32 0\n}\n");
        assert!(message.contains("kernel.ll:2:"), "{message}");
        assert!(message.contains("-O3"), "{message}");
        assert!(take_kept_file(&message).starts_with("define void @f()"));
    }

    #[test]
    fn a_missing_tool_is_named() {
        let message = failure(&Codegen::new("/nowhere/clang", Target::new(None, None)), "");
        assert!(message.starts_with("cannot run `/nowhere/clang -c"), "{message}");
        take_kept_file(&message);
        let linker = Some(PathBuf::from("/nowhere/ld"));
        let message = failure(&Codegen { linker, ..testing::codegen() }, "");
        assert!(message.starts_with("cannot run `/nowhere/ld -shared"), "{message}");
        take_kept_file(&message);
    }

    #[test]
    fn a_symbol_that_nothing_defines_is_an_error() {
        let ir = "declare i32 @elinvar_no_such_function()
            define i32 @elinvar_threadgroups(ptr %l, ptr %s, i64 %b, i64 %e) {
              %r = call i32 @elinvar_no_such_function()
              ret i32 %r
            }";
        let message = failure(&testing::codegen(), ir);
        assert!(message.contains("elinvar_no_such_function"), "{message}");
        assert_eq!(take_kept_file(&message), ir);
        let message = failure(&testing::codegen(), "define void @f() { ret void }");
        assert!(message.contains("elinvar_threadgroups"), "{message}");
        take_kept_file(&message);
    }

    #[test]
    fn another_processor_or_linker_is_another_key() {
        let key = |codegen: &Codegen| codegen.identify(elinvar_cache::Cache::off().key("object")).finish();
        let usual = key(&testing::codegen());
        assert_eq!(key(&testing::codegen()), usual);
        let other = [Target::new(Some("other"), None), Target::new(None, None).unoptimized()];
        for target in other {
            assert_ne!(key(&Codegen { target, ..testing::codegen() }), usual);
        }
        assert_ne!(key(&Codegen { machine: "model name\t: other", ..testing::codegen() }), usual);
        assert_ne!(key(&Codegen { linker: None, ..testing::codegen() }), usual);
    }

    #[test]
    fn clang_links_where_no_linker_is_found() {
        let codegen = Codegen { linker: None, ..testing::codegen() };
        codegen.build(testing::COUNT, "elinvar_threadgroups").unwrap();
    }

    #[cfg(target_arch = "x86_64")]
    mod conversions {
        use half::{bf16, f16};

        use super::*;
        use crate::loader::Launch;

        /// Runs `body`, which reads `%in` and stores to `%out`, for every index below `count`, on a
        /// processor without the conversions.
        #[allow(unsafe_code)] // runs compiled code
        fn run<I, O>(input: &[I], output: &mut [O], body: &str) {
            assert_eq!(input.len(), output.len());
            let ir = format!(
                "define i32 @elinvar_threadgroups(ptr %launch, ptr %scratch, i64 %begin, i64 %end) {{
                entry:
                  %args = load ptr, ptr %launch
                  %ins = load ptr, ptr %args
                  %outs.at = getelementptr ptr, ptr %args, i64 1
                  %outs = load ptr, ptr %outs.at
                  br label %loop
                loop:
                  %i = phi i64 [ %begin, %entry ], [ %i.next, %loop ]
                  {body}
                  %i.next = add i64 %i, 1
                  %done = icmp eq i64 %i.next, %end
                  br i1 %done, label %exit, label %loop
                exit:
                  ret i32 0
                }}"
            );
            let codegen = Codegen { target: Target::new(Some("x86-64"), None), ..testing::codegen() };
            let (code, _) = codegen.build(&ir, "elinvar_threadgroups").unwrap();
            let args = [input.as_ptr().cast(), output.as_mut_ptr().cast()];
            let (sizes, record, stop) = (std::ptr::null(), std::ptr::null_mut(), std::ptr::null());
            let launch = Launch { args: args.as_ptr(), threads: [1; 3], groups: [1; 3], sizes, record, stop };
            // SAFETY: the function reads and writes one element per index below the slices' length.
            let status = unsafe { code.run(&launch, std::ptr::null_mut(), 0..input.len() as u64) };
            assert_eq!(status, 0);
        }

        fn floats() -> Vec<f32> {
            let spread = (0..1 << 20).map(|i: u32| f32::from_bits(i.wrapping_mul(4099)));
            let near_halves = (0..=u16::MAX).flat_map(|bits| {
                let bits = f16::from_bits(bits).to_f32().to_bits();
                [-1, 0, 1, 0xfff, 0x1000, 0x1001].map(|d: i32| f32::from_bits(bits.wrapping_add_signed(d)))
            });
            spread.chain(near_halves).collect()
        }

        #[test]
        fn float_to_half_and_bfloat_round_as_the_reference_does() {
            let input = floats();
            let mut halves = vec![0_u16; input.len()];
            let narrow = |kind| {
                format!(
                    "%at = getelementptr float, ptr %ins, i64 %i
                     %x = load float, ptr %at
                     %y = fptrunc float %x to {kind}
                     %to = getelementptr i16, ptr %outs, i64 %i
                     store {kind} %y, ptr %to"
                )
            };
            run(&input, &mut halves, &narrow("half"));
            for (x, bits) in input.iter().zip(&halves) {
                let (got, want) = (f16::from_bits(*bits), f16::from_f32(*x));
                assert!(
                    got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                    "{x}: {got} {want}"
                );
            }
            run(&input, &mut halves, &narrow("bfloat"));
            for (x, bits) in input.iter().zip(&halves) {
                let (got, want) = (bf16::from_bits(*bits), bf16::from_f32(*x));
                assert!(
                    got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                    "{x}: {got} {want}"
                );
            }
        }

        #[test]
        fn every_half_widens_exactly() {
            let input: Vec<u16> = (0..=u16::MAX).collect();
            let mut output = vec![0_f32; input.len()];
            let body = "%at = getelementptr half, ptr %ins, i64 %i
                        %x = load half, ptr %at
                        %y = fpext half %x to float
                        %to = getelementptr float, ptr %outs, i64 %i
                        store float %y, ptr %to";
            run(&input, &mut output, body);
            for (bits, got) in input.iter().zip(&output) {
                let want = f16::from_bits(*bits).to_f32();
                assert!(
                    got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                    "{bits:#x}: {got} {want}"
                );
            }
        }
    }
}
