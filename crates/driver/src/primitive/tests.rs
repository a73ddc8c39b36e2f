//! Valid and invalid shapes and sizes.

use super::*;

fn sizes(primitive: Primitive) -> Vec<(&'static str, u64, OperandUse)> {
    let operands = primitive.operands().unwrap();
    operands.into_iter().map(|operand| (operand.name, operand.bytes, operand.used)).collect()
}

fn wrong(primitive: Primitive) -> String {
    match primitive.operands() {
        Err(Error::InvalidArgument(text)) => text,
        other => panic!("{other:?}"),
    }
}

const IMAGES: Images = Images { count: 2, channels: 3, height: 5, width: 7 };

fn convolution(window: Window) -> Convolution {
    let layout = Layout::ChannelsLast;
    Convolution {
        weight_type: DataType::F32,
        bias: true,
        ..Convolution::new(DataType::F16, layout, IMAGES, 4, window)
    }
}

#[test]
fn bytes_reach_from_the_first_element_to_the_last() {
    use OperandUse::{Read, Replaced, Updated, Written};
    let mut product = MatMul::packed(DataType::F32, 3, 5, 2);
    assert_eq!(
        sizes(Primitive::MatMul(product)),
        [("left", 60, Read), ("right", 40, Read), ("result", 24, Replaced)]
    );
    product.left = Matrix::strided(5, 3, 20);
    product.transpose_left = true;
    product.result = Matrix { matrix_bytes: 48, ..Matrix::strided(3, 2, 16) };
    product.matrices = 2;
    let expected = [("left", 100 + 92, Read), ("right", 80, Read), ("result", 48 + 40, Written)];
    assert_eq!(sizes(Primitive::MatMul(product)), expected);
    product.beta = 0.5;
    assert_eq!(sizes(Primitive::MatMul(product))[2].2, Updated);
    let reduction = Reduction {
        data_type: DataType::F16,
        kind: ReductionKind::Mean,
        each: Extent::Column,
        source: Matrix::strided(3, 5, 12),
    };
    assert_eq!(sizes(Primitive::Reduction(reduction)), [("source", 34, Read), ("result", 10, Replaced)]);
}

#[test]
fn a_window_fits_so_often() {
    let mut window = Window::new(3, 2);
    assert_eq!(convolution(window).result(), Images { channels: 4, height: 3, width: 6, ..IMAGES });
    window.stride = [2, 3];
    window.dilation = [2, 1];
    window.padding = Padding { top: 1, bottom: 2, left: 1, right: 0 };
    let result = convolution(window).result();
    assert_eq!((result.height, result.width), (2, 3));
    let expected = [
        ("source", 2 * 3 * 5 * 7 * 2, OperandUse::Read),
        ("weights", 4 * 3 * 2 * 3 * 4, OperandUse::Read),
        ("bias", 16, OperandUse::Read),
        ("result", 2 * 4 * 2 * 3 * 2, OperandUse::Replaced),
    ];
    assert_eq!(sizes(Primitive::Convolution(convolution(window))), expected);
}

#[test]
fn what_is_wrong_is_named() {
    let product = MatMul::packed(DataType::F32, 3, 5, 2);
    let text = |change: fn(&mut MatMul)| {
        let mut product = product;
        change(&mut product);
        wrong(Primitive::MatMul(product))
    };
    assert!(
        text(|p| p.transpose_right = true)
            .contains("inner dimensions differ: `left` is 3 × 5, `right` is 2 × 5")
    );
    assert!(text(|p| p.result.columns = 1).contains("`result` is 3 × 1, the product is 3 × 2"));
    assert!(text(|p| p.left.row_bytes = 18).contains("`left` has a row stride of 18 bytes"));
    assert!(text(|p| p.right.rows = 0).contains("`right` is 0 × 2"));
    assert!(text(|p| p.alpha = f32::NAN).contains("alpha NaN"));
    assert!(text(|p| p.matrices = 0).contains("the batch size is 0"));
    assert!(
        text(|p| (p.matrices, p.result.matrix_bytes) = (2, 20))
            .contains("`result` has a matrix stride of 20 bytes")
    );
    assert!(text(|p| p.left.row_bytes = u64::MAX / 4 * 4).contains("more than an allocation can have"));
    let of = |window| wrong(Primitive::Convolution(convolution(window)));
    assert!(of(Window::new(6, 1)).contains("spans 6 rows, more than the 5 of the padded image"));
    assert!(of(Window::new(0, 1)).contains("sizes are [0, 1]"));
    assert!(of(Window { stride: [1, 0], ..Window::new(1, 1) }).contains("strides are [1, 0]"));
    assert!(of(Window { padding: Padding::all(2), ..Window::new(2, 3) }).contains("padding of 2 rows"));
    let huge = Images { count: u32::MAX, channels: u32::MAX, height: u32::MAX, width: u32::MAX };
    let pooling = Pooling {
        data_type: DataType::F32,
        layout: Layout::ChannelsFirst,
        source: huge,
        window: Window::new(1, 1),
        kind: PoolKind::Max,
    };
    assert!(wrong(Primitive::Pooling(pooling)).contains("`source` needs"));
}

#[test]
fn a_set_holds_what_was_put_in() {
    let set = Primitives::NONE
        .with(PrimitiveKind::MatMul, DataType::F32)
        .with(PrimitiveKind::Pooling, DataType::F16)
        .with_images(16, 8);
    let all: Vec<_> = set.iter().collect();
    assert_eq!(all, [(PrimitiveKind::MatMul, DataType::F32), (PrimitiveKind::Pooling, DataType::F16)]);
    let product = |data_type| Primitive::MatMul(MatMul::packed(data_type, 1, 1, 1));
    assert!(set.expect(&product(DataType::F32), &[], "d").is_ok());
    let refused = set.expect(&product(DataType::F16), &[], "d");
    assert!(
        matches!(refused, Err(Error::Unsupported(text)) if text.contains("matrix multiplication of f16: device `d`"))
    );
    let pooling = |width| {
        let source = Images { width, ..IMAGES };
        let (data_type, layout, kind) = (DataType::F16, Layout::ChannelsLast, PoolKind::Average);
        Primitive::Pooling(Pooling { data_type, layout, source, window: Window::new(1, 1), kind })
    };
    assert!(set.expect(&pooling(16), &[], "d").is_ok());
    let refused = set.expect(&pooling(17), &[], "d");
    assert!(matches!(refused, Err(Error::Unsupported(text)) if text.contains("`source` has 5 × 17")));
}

#[test]
fn pooling_keeps_channels_and_counts_positions() {
    let window = Window { stride: [1, 3], ..Window::new(3, 2) };
    let pooling = Pooling {
        data_type: DataType::F32,
        layout: Layout::ChannelsLast,
        source: IMAGES,
        window,
        kind: PoolKind::Max,
    };
    let result = Images { height: 3, width: 2, ..IMAGES };
    assert_eq!(pooling.result(), result);
    let expected = [
        ("source", 2 * 3 * 5 * 7 * 4, OperandUse::Read),
        ("result", 2 * 3 * 3 * 2 * 4, OperandUse::Replaced),
    ];
    assert_eq!(sizes(Primitive::Pooling(pooling)), expected);
}

#[test]
fn matrices_may_not_overlap() {
    let mut product = MatMul::packed(DataType::F32, 3, 4, 5);
    product.matrices = 2;
    product.left.matrix_bytes = 32;
    let text = wrong(Primitive::MatMul(product));
    assert!(
        text.contains("`left` has a matrix stride of 32 bytes; it must be a multiple of 16 and at least 48"),
        "{text}"
    );
}

/// A matrix that is reduced is an image of one channel, and its result one of one row or column.
#[test]
fn limits_of_images_hold_for_what_is_reduced() {
    let set = Primitives::NONE.with(PrimitiveKind::Reduction, DataType::F32).with_images(100, 4);
    let expect = |rows: u32, columns: u32, each: Extent| {
        let source = Matrix::packed(DataType::F32, rows, columns);
        let reduction = Reduction { data_type: DataType::F32, kind: ReductionKind::Sum, each, source };
        set.expect(&Primitive::Reduction(reduction), &[], "d")
    };
    assert!(expect(100, 100, Extent::Row).is_ok() && expect(100, 100, Extent::Column).is_ok());
    for (rows, columns) in [(101, 1), (1, 101)] {
        match expect(rows, columns, Extent::Row) {
            Err(Error::Unsupported(text)) => {
                let expected = format!("`source` has {rows} × {columns} pixels of 1 channels");
                assert!(text.contains(&expected) && text.contains("up to 100 × 100 of 4"), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
}
