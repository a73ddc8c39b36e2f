//! Attributes of parameters, functions, calls and attribute groups, kept as text; and the words before a
//! function or global: linkage, visibility, calling convention.

use super::{Parser, Result};
use crate::lexer::Kind;

/// The attributes of LLVM 19 to 21, in all positions.
const ATTRIBUTES: &[&str] = &[
    "align",
    "alignstack",
    "allocalign",
    "allockind",
    "allocptr",
    "allocsize",
    "alwaysinline",
    "builtin",
    "byref",
    "byval",
    "captures",
    "cold",
    "convergent",
    "coro_elide_safe",
    "coro_only_destroy_when_complete",
    "dead_on_return",
    "dead_on_unwind",
    "dereferenceable",
    "dereferenceable_or_null",
    "disable_sanitizer_instrumentation",
    "elementtype",
    "fn_ret_thunk_extern",
    "hot",
    "hybrid_patchable",
    "immarg",
    "initializes",
    "inlinehint",
    "inreg",
    "jumptable",
    "memory",
    "minsize",
    "mustprogress",
    "naked",
    "nest",
    "noalias",
    "nobuiltin",
    "nocallback",
    "nocapture",
    "nocf_check",
    "nodivergencesource",
    "noduplicate",
    "noext",
    "nofpclass",
    "nofree",
    "noimplicitfloat",
    "noinline",
    "nomerge",
    "nonlazybind",
    "nonnull",
    "noprofile",
    "norecurse",
    "noredzone",
    "noreturn",
    "nosanitize_bounds",
    "nosanitize_coverage",
    "nosync",
    "noundef",
    "nounwind",
    "null_pointer_is_valid",
    "optdebug",
    "optforfuzzing",
    "optnone",
    "optsize",
    "presplitcoroutine",
    "range",
    "readnone",
    "readonly",
    "returned",
    "returns_twice",
    "safestack",
    "sanitize_address",
    "sanitize_hwaddress",
    "sanitize_memory",
    "sanitize_memtag",
    "sanitize_numerical_stability",
    "sanitize_realtime",
    "sanitize_realtime_blocking",
    "sanitize_thread",
    "sanitize_type",
    "shadowcallstack",
    "signext",
    "skipprofile",
    "speculatable",
    "speculative_load_hardening",
    "sret",
    "ssp",
    "sspreq",
    "sspstrong",
    "strictfp",
    "swiftasync",
    "swifterror",
    "swiftself",
    "uwtable",
    "vscale_range",
    "willreturn",
    "writable",
    "writeonly",
    "zeroext",
];

const LINKAGE: &[&str] = &[
    "private",
    "internal",
    "available_externally",
    "linkonce",
    "linkonce_odr",
    "weak",
    "weak_odr",
    "common",
    "appending",
    "extern_weak",
    "external",
    "dso_local",
    "dso_preemptable",
    "default",
    "hidden",
    "protected",
    "dllimport",
    "dllexport",
];

const CONVENTIONS: &[&str] = &[
    "ccc",
    "fastcc",
    "coldcc",
    "tailcc",
    "swiftcc",
    "swifttailcc",
    "preserve_mostcc",
    "preserve_allcc",
    "preserve_nonecc",
    "cxx_fast_tlscc",
    "anyregcc",
    "aarch64_vector_pcs",
    "aarch64_sve_vector_pcs",
    "arm_aapcscc",
    "arm_aapcs_vfpcc",
    "x86_vectorcallcc",
    "x86_regcallcc",
    "x86_64_sysvcc",
    "win64cc",
    "intel_ocl_bicc",
    "spir_func",
    "spir_kernel",
    "ptx_kernel",
    "ptx_device",
    "amdgpu_kernel",
    "amdgpu_cs",
    "amdgpu_cs_chain",
];

impl<'a> Parser<'a> {
    /// All attributes that follow, one space between them.
    pub(super) fn attributes(&mut self) -> Result<String> {
        let mut text = String::new();
        while self.at_attribute() {
            let start = self.at;
            self.attribute()?;
            join(&mut text, self.slice(start, self.at));
        }
        Ok(text)
    }

    fn at_attribute(&self) -> bool {
        match self.peek().kind {
            Kind::String => true,
            Kind::Hash => super::is_number(&self.text()[1..]),
            Kind::Word => ATTRIBUTES.contains(&self.text()),
            _ => false,
        }
    }

    /// `name`, `name(…)`, `name=1`, `align 8`, `"name"`, `"name"="value"`, `#7`.
    fn attribute(&mut self) -> Result<()> {
        let quoted = self.peek().kind == Kind::String;
        let align = self.is_word("align");
        self.advance();
        if self.eat(b'=') {
            return match (self.peek().kind, quoted) {
                (Kind::String, true) | (Kind::Int, false) => {
                    self.advance();
                    Ok(())
                }
                _ => self.expected("the value of an attribute"),
            };
        }
        if align && self.peek().kind == Kind::Int {
            self.advance();
        } else if self.is_punct(b'(') {
            self.skip_group()?;
        }
        Ok(())
    }

    /// Linkage, visibility and similar keywords before a function's return type.
    pub(super) fn function_linkage(&mut self) -> Result<String> {
        let mut text = String::new();
        loop {
            let start = self.at;
            if self.is_word("cc") {
                self.advance();
                self.number::<u32>("the number of a calling convention")?;
            } else if self.peek().kind == Kind::Word && is_linkage_or_convention(self.text()) {
                self.advance();
            } else {
                return Ok(text);
            }
            join(&mut text, self.slice(start, self.at));
        }
    }

    /// Linkage, visibility and similar keywords before `global` or `constant`.
    pub(super) fn global_linkage(&mut self) -> Result<String> {
        let mut text = String::new();
        loop {
            let start = self.at;
            match self.text() {
                _ if self.peek().kind != Kind::Word => return Ok(text),
                "addrspace" => {
                    self.address_space()?;
                }
                "thread_local" => {
                    self.advance();
                    if self.is_punct(b'(') {
                        self.skip_group()?;
                    }
                }
                "unnamed_addr" | "local_unnamed_addr" | "externally_initialized" => {
                    self.advance();
                }
                word if LINKAGE.contains(&word) => {
                    self.advance();
                }
                _ => return Ok(text),
            }
            join(&mut text, self.slice(start, self.at));
        }
    }

    /// Everything after a function's parameter list.
    pub(super) fn function_suffix(&mut self) -> Result<String> {
        let mut text = String::new();
        loop {
            let start = self.at;
            match self.text() {
                _ if self.at_attribute() => self.attribute()?,
                _ if self.peek().kind != Kind::Word => return Ok(text),
                "unnamed_addr" | "local_unnamed_addr" => {
                    self.advance();
                }
                "addrspace" => {
                    self.address_space()?;
                }
                "section" | "partition" | "gc" => {
                    self.advance();
                    self.string("a quoted name")?;
                }
                "comdat" => self.comdat_use()?,
                "personality" | "prefix" | "prologue" => {
                    self.advance();
                    self.typed_const()?;
                }
                _ => return Ok(text),
            }
            join(&mut text, self.slice(start, self.at));
        }
    }

    /// `comdat`, `comdat($name)`; the cursor stands at the word.
    pub(super) fn comdat_use(&mut self) -> Result<()> {
        self.expect_word("comdat")?;
        if self.eat(b'(') {
            self.name(Kind::Comdat, "a comdat")?;
            self.expect(b')')?;
        }
        Ok(())
    }

    /// `attributes #7 = { … }`.
    pub(super) fn attribute_group(&mut self) -> Result<()> {
        self.expect_word("attributes")?;
        let number = match self.peek().kind {
            Kind::Hash => self.text()[1..].parse().ok(),
            _ => None,
        };
        let Some(number) = number else { return self.expected("the number of an attribute group") };
        self.advance();
        self.expect(b'=')?;
        self.expect(b'{')?;
        let text = self.attributes()?;
        if !self.is_punct(b'}') {
            return self.error(format!("unknown attribute {}", self.found()));
        }
        self.advance();
        self.module.attributes.push((number, text));
        Ok(())
    }
}

pub(super) fn is_convention(word: &str) -> bool {
    CONVENTIONS.contains(&word)
}

fn is_linkage_or_convention(word: &str) -> bool {
    LINKAGE.contains(&word) || is_convention(word)
}

/// Append a part, after a space if there is something before it.
pub(super) fn join(text: &mut String, part: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(part);
}
