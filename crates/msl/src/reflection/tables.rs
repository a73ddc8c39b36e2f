//! Parses the tables that [`crate::rewrite::glue`] has generated, from the constants in LLVM IR text.

use std::collections::HashMap;

use elinvar_driver::{ElementType, Scalar};

use crate::diagnostics::type_names;

/// A parameter's type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TypeDescription {
    pub passed: PassedBy,
    pub size: u64,
    pub align: u64,
    pub constant: bool,
    /// ID of the struct, if its members have attributes.
    pub members: Option<usize>,
    pub element: ElementType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassedBy {
    Pointer,
    Reference,
    Value,
}

/// The tables of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelTable {
    pub parameters: Vec<TypeDescription>,
    pub values: Vec<i64>,
}

/// The tables of a module, by kernel number.
pub(crate) fn read(ir: &str) -> HashMap<usize, KernelTable> {
    let globals = globals(ir);
    let mut tables: HashMap<usize, KernelTable> = HashMap::new();
    for (name, value) in &globals {
        if let Some(i) = number(name, "@__elinvar_parameters_") {
            let parameters = value.split(" { ").skip(1).filter_map(|g| description(g, &globals));
            tables.entry(i).or_default().parameters = parameters.collect();
        } else if let Some(i) = number(name, "@__elinvar_values_") {
            tables.entry(i).or_default().values = integers(value.split(" [").last().unwrap_or_default());
        }
    }
    tables
}

/// The members of each struct with attributes, by its number.
pub(crate) fn read_members(ir: &str) -> HashMap<usize, Vec<TypeDescription>> {
    let globals = globals(ir);
    let described =
        |value: &str| value.split(" { ").skip(1).filter_map(|g| description(g, &globals)).collect();
    let members = globals
        .iter()
        .filter_map(|(name, value)| Some((number(name, "@__elinvar_members_")?, described(value))));
    members.collect()
}

/// Type and index of each function constant, by its number.
pub(crate) fn read_constants(ir: &str) -> HashMap<usize, (TypeDescription, i64)> {
    let globals = globals(ir);
    let mut constants = HashMap::new();
    for (name, value) in &globals {
        let Some(k) = number(name, "@__elinvar_constant_types_") else { continue };
        let described = value.split(" { ").nth(1).and_then(|g| description(g, &globals));
        let index = globals
            .get(format!("@__elinvar_constant_values_{k}").as_str())
            .and_then(|list| integers(list.split(" [").last()?).get(1).copied());
        constants.extend(described.zip(index).map(|found| (k, found)));
    }
    constants
}

/// Remove a table: its numbers, and the module without it.
pub(crate) fn extract(ir: String, table: &str) -> (Vec<i64>, String) {
    let (line, without) = extract_line(ir, table);
    (line.map(|line| integers(line.split(" [").last().unwrap_or_default())).unwrap_or_default(), without)
}

/// The template that each kernel in question instantiates, by the kernel's number; see [`crate::rewrite::instantiations`].
pub(crate) fn read_selections(ir: &str) -> HashMap<usize, usize> {
    let globals = globals(ir);
    let annotations = globals.get("@llvm.global.annotations").copied().unwrap_or_default();
    let mut templates: HashMap<&str, usize> = HashMap::new();
    for entry in annotations.split("{ ptr ").skip(1) {
        let mut pointers = entry.split(", ptr ").map(|p| p.split(", i32").next().unwrap_or(p));
        let (Some(function), Some(text)) = (pointers.next(), pointers.next()) else { continue };
        let index =
            globals.get(text).and_then(|text| text.split_once("c\"elinvar_template_")?.1.split('\\').next());
        // Of several declarations of a template the last one is its definition.
        if let Some(index) = index.and_then(|index| index.parse::<usize>().ok()) {
            let last = templates.entry(function).or_default();
            *last = index.max(*last);
        }
    }
    let selected = |(name, value): (&&str, &&str)| {
        let function = value.split_once("ptr ")?.1.split(", align").next()?;
        Some((number(name, "@__elinvar_selected_")?, *templates.get(function)?))
    };
    globals.iter().filter_map(selected).collect()
}

/// Remove a global: its definition, and the module without it.
pub(crate) fn extract_line(ir: String, global: &str) -> (Option<String>, String) {
    let head = format!("@{global} = ");
    let Some(line) = ir.lines().find(|l| l.starts_with(&head)).map(str::to_owned) else { return (None, ir) };
    let without = ir.replacen(&format!("{line}\n"), "", 1);
    (Some(line), without)
}

fn globals(ir: &str) -> HashMap<&str, &str> {
    ir.lines().filter(|l| l.starts_with('@')).filter_map(|l| l.split_once(" = ")).collect()
}

fn number(name: &str, prefix: &str) -> Option<usize> {
    name.strip_prefix(prefix)?.parse().ok()
}

/// Parse `i64 1, i64 -2, …`.
fn integers(list: &str) -> Vec<i64> {
    let ends = |c: char| c == ',' || c == ']' || c == '}';
    list.split("i64 ").skip(1).filter_map(|v| v.split(ends).next()?.trim().parse().ok()).collect()
}

fn description(group: &str, globals: &HashMap<&str, &str>) -> Option<TypeDescription> {
    let [passed, size, align, constant, scalar, lanes, form, members] = integers(group)[..] else {
        return None;
    };
    let symbol = group.split("ptr ").nth(1)?.split([' ', '}', ',']).next()?;
    let name = globals.get(symbol).and_then(|text| type_name(text))?;
    let element = match (scalar_of(scalar), lanes, form) {
        (Some(s), 0, 2) => ElementType::Atomic(s),
        (Some(s), 0, 0) => ElementType::Scalar(s),
        (Some(scalar), lanes @ 2..=4, form) => {
            ElementType::Vector { scalar, lanes: u32::try_from(lanes).ok()?, packed: form == 1 }
        }
        (_, _, form) => match form & 0xff {
            3 => ElementType::Inbox {
                item: (form >> 8 & 0xff_ffff).cast_unsigned(),
                result: (form >> 32).cast_unsigned(),
            },
            4 => ElementType::Queue {
                message: (form >> 8 & 0xff_ffff).cast_unsigned(),
                slot: (form >> 32).cast_unsigned(),
            },
            5 => ElementType::LaunchQueue,
            _ => ElementType::Other(name),
        },
    };
    let passed = match passed {
        1 => PassedBy::Pointer,
        2 => PassedBy::Reference,
        _ => PassedBy::Value,
    };
    let unsigned = |v: i64| u64::try_from(v).ok();
    Some(TypeDescription {
        passed,
        size: unsigned(size)?,
        align: unsigned(align)?,
        constant: constant == 1,
        members: usize::try_from(members).ok()?.checked_sub(1),
        element,
    })
}

fn scalar_of(code: i64) -> Option<Scalar> {
    use Scalar::*;
    let all = [Bool, I8, U8, I16, U16, I32, U32, I64, U64, F16, BF16, F32];
    usize::try_from(code).ok()?.checked_sub(1).and_then(|i| all.get(i).copied())
}

/// Parse `c"… [T = Name]\00"`.
fn type_name(text: &str) -> Option<String> {
    let from = text.find("[T = ")? + "[T = ".len();
    let to = text.rfind("]\\00\"")?;
    Some(type_names::in_msl(text.get(from..to)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_selections() {
        let ir = r#"
@.str.2 = private unnamed_addr constant [19 x i8] c"elinvar_template_0\00", section "llvm.metadata"
@.str.3 = private unnamed_addr constant [19 x i8] c"elinvar_template_1\00", section "llvm.metadata"
@.str.4 = private unnamed_addr constant [6 x i8] c"<sta>\00", section "llvm.metadata"
@.str.5 = private unnamed_addr constant [19 x i8] c"elinvar_template_2\00", section "llvm.metadata"
@__elinvar_selected_0 = constant ptr @_ZL1fIfEvPT_, align 8
@__elinvar_selected_3 = constant ptr @"f g", align 8
@__elinvar_selected_4 = constant ptr @of_no_template, align 8
@llvm.global.annotations = appending global [3 x { ptr, ptr, ptr, i32, ptr }] [{ ptr, ptr, ptr, i32, ptr } { ptr @_ZL1fIfEvPT_, ptr @.str.3, ptr @.str.4, i32 3, ptr null }, { ptr, ptr, ptr, i32, ptr } { ptr @"f g", ptr @.str.5, ptr @.str.4, i32 9, ptr null }, { ptr, ptr, ptr, i32, ptr } { ptr @"f g", ptr @.str.2, ptr @.str.4, i32 9, ptr null }], section "llvm.metadata"
"#;
        assert_eq!(read_selections(ir), HashMap::from([(0, 1), (3, 2)]));
    }

    #[test]
    fn reads_constants() {
        let ir = r#"
@.str = private unnamed_addr constant [45 x i8] c"const char *elinvar::type_name() [T = float]\00", align 1
@.str.1 = private unnamed_addr constant [60 x i8] c"const char *elinvar::type_name() [T = ns::P<4>]\00", align 1
@__elinvar_parameters_0 = constant [2 x %"struct.d"] [%"struct.d" { i64 1, i64 4, i64 4, i64 1, i64 12, i64 0, i64 0, i64 0, ptr @.str }, %"struct.d" { i64 2, i64 24, i64 8, i64 0, i64 0, i64 0, i64 0, i64 3, ptr @.str.1 }], align 16
@__elinvar_values_0 = constant [3 x i64] [i64 1, i64 1, i64 -1], align 16
"#;
        let table = &read(ir)[&0];
        assert_eq!(table.values, [1, 1, -1]);
        assert_eq!(table.parameters[0].element, ElementType::Scalar(Scalar::F32));
        assert!(table.parameters[0].constant && table.parameters[0].passed == PassedBy::Pointer);
        assert_eq!(table.parameters[1].element, ElementType::Other("ns::P<4>".into()));
        assert_eq!((table.parameters[0].members, table.parameters[1].members), (None, Some(2)));
        assert_eq!((table.parameters[1].size, table.parameters[1].align), (24, 8));
    }
}
