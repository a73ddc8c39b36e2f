//! The version of the Metal Shading Language that a kernel's code needs, and the systems that have it.
//!
//! Facts are those of Apple's Metal Shading Language Specification, version 4: versions and systems, section 1.6.10 ("Compiler Options Controlling the Language
//! Version"), where macOS 26 and iOS 26 still have the numbers 16 and 19; features, sections 2.1 (`bfloat`), 2.4 (SIMD-group matrices), 2.6 (atomics), 2.15 (function
//! tables), 6.9.2 and 6.9.3 (SIMD-group and quad-group functions), 6.15.3 (fences), 6.19 (logging) and 7.2 (tensor operations). 64-bit integers (2.2) are not
//! checked: addresses and `size_t` have 64 bits in all versions.

use std::fmt;
use std::str::FromStr;

use elinvar_driver::{ElementType, Scalar, Signature};
use elinvar_ir::{Callee, Inst, Module, Op, Type};
use elinvar_spmd::intrinsic::{Group, GroupCall, GroupOp, Intrinsic};

use crate::portability::Violation;

/// A version of the Metal Shading Language, from 2.0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Language(u32);

/// A version of an operating system: number, and the second number of macOS 10.
type Version = (u32, u32);

/// Each version of the language with the first macOS and iOS that have it.
const LANGUAGES: [(Language, Version, Version); 9] = [
    (Language(20), (10, 13), (11, 0)),
    (Language(21), (10, 14), (12, 0)),
    (Language(22), (10, 15), (13, 0)),
    (Language(23), (11, 0), (14, 0)),
    (Language(24), (12, 0), (15, 0)),
    (Language(30), (13, 0), (16, 0)),
    (Language(31), (14, 0), (17, 0)),
    (Language(32), (15, 0), (18, 0)),
    (Language(40), (26, 0), (26, 0)),
];

impl Language {
    /// The value of `__METAL_VERSION__`, such as 310.
    pub const fn macro_value(self) -> u32 {
        self.0 * 10
    }

    fn systems(self) -> (Version, Version) {
        let known = LANGUAGES.iter().find(|(language, ..)| *language == self);
        known.map_or(((0, 0), (0, 0)), |(_, macos, ios)| (*macos, *ios))
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 10, self.0 % 10)
    }
}

/// What a program is compiled for: a version of the language on all systems, or that of the first release of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// A version of the language, whatever the system.
    Any(Language),
    /// macOS from a version on.
    MacOs(u32, u32),
    /// iOS from a version on.
    Ios(u32, u32),
}

impl System {
    /// The latest version of the language that all releases from this one on have.
    pub fn language(self) -> Language {
        let reached = |of: fn(&(Language, Version, Version)) -> Version, version: Version| {
            LANGUAGES
                .iter()
                .rfind(|known| of(known) <= version)
                .map_or(LANGUAGES[0].0, |(language, ..)| *language)
        };
        match self {
            Self::Any(language) => language,
            Self::MacOs(major, minor) => reached(|known| known.1, (major, minor)),
            Self::Ios(major, minor) => reached(|known| known.2, (major, minor)),
        }
    }
}

impl FromStr for System {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || {
            format!(
                "unknown system `{text}`: expected msl2.0 to msl4.0, macos10.13 to macos26 or ios11 to ios26"
            )
        };
        let digits = text.find(|c: char| c.is_ascii_digit()).ok_or_else(unknown)?;
        let (name, version) = text.split_at(digits);
        let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
        let number = |text: &str| text.parse::<u32>().map_err(|_| unknown());
        let version = (number(major)?, number(minor)?);
        // Apple's numbers go from macOS 15 and iOS 18 to 26.
        let exists = |first: Version, last: u32| version >= first && (version.0 <= last || version.0 >= 26);
        match name {
            "msl" => {
                let known =
                    LANGUAGES.iter().find(|(language, ..)| (language.0 / 10, language.0 % 10) == version);
                known.map(|(language, ..)| Self::Any(*language)).ok_or_else(unknown)
            }
            "macos" if exists((10, 13), 15) => Ok(Self::MacOs(version.0, version.1)),
            "ios" if exists((11, 0), 18) => Ok(Self::Ios(version.0, version.1)),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any(language) => write!(f, "msl{language}"),
            Self::MacOs(major, minor) => write!(f, "macos{}", Shown((*major, *minor))),
            Self::Ios(major, minor) => write!(f, "ios{}", Shown((*major, *minor))),
        }
    }
}

/// A system's version, without a second number that is 0.
struct Shown(Version);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            (major, 0) => write!(f, "{major}"),
            (major, minor) => write!(f, "{major}.{minor}"),
        }
    }
}

/// A feature, and the first version of the language with it on macOS and on iOS.
#[derive(Clone, Copy)]
struct Feature {
    name: &'static str,
    macos: Language,
    ios: Language,
}

impl Feature {
    const fn new(name: &'static str, version: u32) -> Self {
        Self::by_system(name, version, version)
    }

    const fn by_system(name: &'static str, macos: u32, ios: u32) -> Self {
        Self { name, macos: Language(macos), ios: Language(ios) }
    }

    /// The version that a system needs. A version of the language for all systems has what all have.
    fn needed(self, system: System) -> Language {
        match system {
            System::Any(_) => self.macos.max(self.ios),
            System::MacOs(..) => self.macos,
            System::Ios(..) => self.ios,
        }
    }

    fn reason(self, system: System) -> String {
        let Self { name, macos, ios } = self;
        let (from_macos, from_ios) = (Shown(macos.systems().0), Shown(ios.systems().1));
        let has = system.language();
        if macos == ios {
            return format!(
                "{name}: from MSL {macos} on (macOS {from_macos}, iOS {from_ios}), not in {has} ({system})"
            );
        }
        format!(
            "{name}: from MSL {macos} on macOS {from_macos} and {ios} on iOS {from_ios} on, not in {has} ({system})"
        )
    }
}

const BFLOAT: Feature = Feature::new("`bfloat`", 31);
const FLOAT_ATOMICS: Feature = Feature::new("floating-point atomics", 30);
const WIDE_ATOMICS: Feature = Feature::new("64-bit atomics", 24);
const BOOL_ATOMICS: Feature = Feature::new("`atomic_bool`", 24);
const FUNCTION_TABLE: Feature = Feature::new("`visible_function_table`", 23);
const MATRIX: Feature = Feature::new("SIMD-group matrices", 23);
const FILL: Feature = Feature::new("SIMD-group and quad-group shift and fill", 24);
const FENCE: Feature = Feature::new("`atomic_thread_fence`", 32);
const LOG: Feature = Feature::new("logging", 32);
const TENSOR: Feature = Feature::new("tensor operations", 40);

/// Headers whose code is [`TENSOR`], whatever instructions it consists of.
const TENSOR_HEADERS: [&str; 3] = ["cooperative_tensor.h", "matmul2d.h", "tensor.h"];

/// What a version of the language does not have of what a kernel uses, each once: in the order of the code, then of its parameters.
pub fn language_violations(system: System, module: &Module, signature: &Signature) -> Vec<Violation> {
    let language = system.language();
    let mut found: Vec<Violation> = Vec::new();
    let mut add = |feature: Feature, location| {
        let reason = feature.reason(system);
        if feature.needed(system) > language && found.iter().all(|known| known.reason != reason) {
            found.push(Violation { location, reason });
        }
    };
    for inst in module.functions.iter().flat_map(|f| &f.blocks).flat_map(|block| &block.insts) {
        let is_of_tensor = module.is_of_header(&inst.metadata, &TENSOR_HEADERS);
        if let Some(feature) = if is_of_tensor { Some(TENSOR) } else { of_instruction(module, inst) } {
            add(feature, module.location(&inst.metadata));
        }
    }
    for feature in signature.args.iter().filter_map(|arg| of_parameter(&arg.element)) {
        add(feature, None);
    }
    found
}

fn of_parameter(element: &ElementType) -> Option<Feature> {
    match element {
        ElementType::Scalar(Scalar::BF16) | ElementType::Vector { scalar: Scalar::BF16, .. } => Some(BFLOAT),
        ElementType::Atomic(Scalar::F32) => Some(FLOAT_ATOMICS),
        ElementType::Atomic(Scalar::I64 | Scalar::U64) => Some(WIDE_ATOMICS),
        ElementType::Atomic(Scalar::Bool) => Some(BOOL_ATOMICS),
        ElementType::Function { .. } => Some(FUNCTION_TABLE),
        _ => None,
    }
}

fn of_instruction(module: &Module, inst: &Inst) -> Option<Feature> {
    match &inst.op {
        Op::AtomicRmw { value, .. } if value.ty.is_float() => Some(FLOAT_ATOMICS),
        Op::AtomicRmw { value, .. } if value.ty == Type::I64 => Some(WIDE_ATOMICS),
        Op::CmpXchg { new, .. } if new.ty == Type::I64 => Some(WIDE_ATOMICS),
        Op::Fence(_) => Some(FENCE),
        Op::Call(call) => {
            let Callee::Function(name) = &call.callee else { return None };
            match Intrinsic::parse(name)? {
                Intrinsic::Group(group) => Some(of_group(group)),
                Intrinsic::Log => Some(LOG),
                _ => None,
            }
        }
        op => op.result_type(module).is_some_and(|ty| *ty.scalar() == Type::BFloat).then_some(BFLOAT),
    }
}

/// Tables of the functions for SIMD-groups and quad-groups. `quad_all` and `quad_any` (2.3 on iOS) count as the ballots that they are in the code (2.2).
fn of_group(call: GroupCall) -> Feature {
    match (call.op, call.group) {
        (GroupOp::MatrixMultiplyAccumulate, _) => MATRIX,
        (GroupOp::ShuffleAndFillUp | GroupOp::ShuffleAndFillDown, _) => FILL,
        (op, _) if op.reduction().is_some() => {
            Feature::by_system("SIMD-group and quad-group reductions", 21, 23)
        }
        (GroupOp::Ballot | GroupOp::IsFirst | GroupOp::BroadcastFirst, _) => {
            Feature::by_system("SIMD-group and quad-group votes and first lanes", 21, 22)
        }
        (GroupOp::ShuffleRotateUp | GroupOp::ShuffleRotateDown, _) => {
            Feature::by_system("SIMD-group and quad-group rotations", 21, 22)
        }
        (_, Group::Quadgroup) => Feature::new("quad-group permute functions", 20),
        (_, Group::Simdgroup) => Feature::by_system("SIMD-group permute functions", 20, 22),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_have_the_versions_of_the_specification() {
        for (text, language, printed) in [
            ("msl2.4", 24, "msl2.4"),
            ("msl4.0", 40, "msl4.0"),
            ("msl4", 40, "msl4.0"),
            ("macos10.13", 20, "macos10.13"),
            ("macos10.15", 22, "macos10.15"),
            ("macos11", 23, "macos11"),
            ("macos12", 24, "macos12"),
            ("macos13.3", 30, "macos13.3"),
            ("macos14", 31, "macos14"),
            ("macos15", 32, "macos15"),
            ("macos15.6", 32, "macos15.6"),
            ("macos26", 40, "macos26"),
            ("macos27", 40, "macos27"),
            ("ios11", 20, "ios11"),
            ("ios13", 22, "ios13"),
            ("ios14", 23, "ios14"),
            ("ios16", 30, "ios16"),
            ("ios18", 32, "ios18"),
            ("ios26", 40, "ios26"),
        ] {
            let system: System = text.parse().unwrap();
            assert_eq!((system.language(), system.to_string().as_str()), (Language(language), printed));
            assert_eq!(system.language().macro_value(), language * 10);
        }
        for wrong in [
            "",
            "msl",
            "msl1.2",
            "msl2.5",
            "msl3.3",
            "macos",
            "macos10.12",
            "macos16",
            "ios10",
            "ios19",
            "tvos13",
            "macos1x",
            "13",
        ] {
            let error = wrong.parse::<System>().unwrap_err();
            assert!(error.starts_with(&format!("unknown system `{wrong}`")), "{error}");
        }
    }
}
