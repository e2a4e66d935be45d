//! Sizes, spaces and colours.

use std::collections::BTreeSet;

use eframe::egui::{
    Button, Color32, Context, FontDefinitions, FontFamily, FontId, Margin, Rect, RichText, Stroke, TextStyle, Ui,
    UiBuilder, vec2,
};

/// The space around the conversation and its parts.
pub const MARGIN: Margin = Margin::same(10);
/// The width below which a window has space only for the conversation.
pub const NARROW: f32 = 680.0;
/// The widest line of text that is easy to read.
pub const LINE: f32 = 760.0;
/// The width of a scroll bar, which is drawn over the contents.
pub const SCROLL_BAR: f32 = 10.0;
/// The height of a small button.
pub const SMALL: f32 = 20.0;

/// Adds space to egui's style, and fonts: the one for code has arrows and mathematical signs that the one for text
/// lacks. For all other letters there are the system's fonts ([`fonts`](crate::fonts)).
pub fn set(context: &Context) {
    let mut fonts = FontDefinitions::default();
    let code = fonts.families.get(&FontFamily::Monospace).and_then(|fonts| fonts.first().cloned());
    fonts.families.entry(FontFamily::Proportional).or_default().extend(code);
    context.set_fonts(fonts);
    context.all_styles_mut(|style| {
        for (text, size) in [(TextStyle::Body, 15.0), (TextStyle::Button, 14.0), (TextStyle::Heading, 19.0)] {
            style.text_styles.insert(text, FontId::proportional(size));
        }
        style.text_styles.insert(TextStyle::Monospace, FontId::monospace(13.5));
        style.text_styles.insert(TextStyle::Small, FontId::proportional(12.5));
        style.spacing.item_spacing = vec2(8.0, 6.0);
        style.spacing.button_padding = vec2(10.0, 5.0);
        style.spacing.interact_size.y = 24.0;
        let dark = style.visuals.dark_mode;
        let text = if dark { 215 } else { 35 };
        // Without an outline, fields and check boxes are hard to tell from the background.
        style.visuals.widgets.inactive.bg_stroke = Stroke::new(1.0, Color32::from_gray(if dark { 85 } else { 160 }));
        // Small letters in pure red are hard to read.
        style.visuals.error_fg_color =
            if dark { Color32::from_rgb(255, 130, 120) } else { Color32::from_rgb(180, 30, 30) };
        style.visuals.widgets.noninteractive.fg_stroke.color = Color32::from_gray(text);
        // egui's own colours for these have too little contrast.
        style.visuals.weak_text_color = Some(Color32::from_gray(if dark { 160 } else { 95 }));
        if !dark {
            style.visuals.hyperlink_color = Color32::from_rgb(0, 90, 180);
        }
    });
}

/// Shows contents in a column that is easy to read, in the middle of the available space. It leaves space for a scroll
/// bar.
pub fn column<R>(ui: &mut Ui, contents: impl FnOnce(&mut Ui) -> R) -> R {
    let space = ui.available_rect_before_wrap();
    let width = (space.width() - SCROLL_BAR).min(LINE);
    let left = space.left() + ((space.width() - width) / 2.0 - SCROLL_BAR).max(0.0).round();
    let place = Rect::from_x_y_ranges(left..=left + width, space.y_range());
    ui.scope_builder(UiBuilder::new().max_rect(place), contents).inner
}

/// A small button.
pub fn small(text: &str) -> Button<'_> {
    Button::new(RichText::new(text).small()).small().min_size(vec2(0.0, SMALL))
}

/// The background of the user's messages.
pub fn user(ui: &Ui) -> Color32 {
    ui.visuals().selection.bg_fill.gamma_multiply(0.45)
}

/// The background of errors.
pub fn error(ui: &Ui) -> Color32 {
    ui.visuals().error_fg_color.gamma_multiply(0.15)
}

/// The letters of texts for which no font has a glyph.
pub fn boxes<T: AsRef<str>>(window: &Context, texts: impl Iterator<Item = T>) -> String {
    let font = TextStyle::Body.resolve(&window.global_style());
    let mut boxes = BTreeSet::new();
    window.fonts_mut(|fonts| {
        for text in texts {
            let letters = text.as_ref().chars().filter(|letter| !letter.is_whitespace());
            boxes.extend(letters.filter(|letter| !fonts.has_glyph(&font, *letter)));
        }
    });
    boxes.into_iter().collect()
}

/// A number of bytes in units that people read.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use eframe::egui::{Context, RawInput};

    #[test]
    fn arrows_and_mathematics_need_no_font_of_the_system() {
        let context = Context::default();
        super::set(&context);
        let mut boxes = None;
        let output = context.run_ui(RawInput::default(), |ui| {
            boxes = Some(super::boxes(ui.ctx(), ["a → b ⇒ c ↔ d ≤ ∞ ∑ ∫ √ ∈ ∀ α² x₁ 😀 ✔ 中"].into_iter()));
        });
        output.drop_without_applying_deltas();
        assert_eq!(boxes.as_deref(), Some("中"), "there are no Chinese letters in fonts of the window");
    }

    #[test]
    fn bytes_have_their_unit() {
        for (bytes, text) in
            [(0, "0.0 KiB"), (1536, "1.5 KiB"), (6 << 20, "6.0 MiB"), (17 << 30, "17.0 GiB"), (2 << 50, "2048.0 TiB")]
        {
            assert_eq!(super::bytes(bytes), text);
        }
    }
}
