//! The CSS of the page, for light and dark mode.

/// The content of the `style` element.
pub const STYLE: &str = "
:root { color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --text: #1c2430; --faint: #66717f; --line: #dfe3e8; --grid: #eceff2;
  --one: #2563c9; --two: #d9822b; --three: #8f4bb8; --good: #16803c; --bad: #c42b2b; --goodish: #e3f4e9; --badish: #fbe6e6; }
@media (prefers-color-scheme: dark) { :root {
  --page: #12161c; --card: #1b2129; --text: #e4e8ed; --faint: #97a2b0; --line: #303945; --grid: #272f39;
  --one: #6ea3f5; --two: #eda55b; --three: #c08ae0; --good: #63cf8a; --bad: #f08080; --goodish: #1d3526; --badish: #402325; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 32px 20px 48px; }
header { margin-bottom: 22px; }
h1 { font-size: 27px; line-height: 1.2; margin: 0 0 4px; font-weight: 650; letter-spacing: -0.01em; }
h2 { font-size: 15px; margin: 0; font-weight: 600; }
p { margin: 0; }
.lead { font-size: 16px; }
.faint { color: var(--faint); font-size: 13px; }
.badges { display: flex; flex-wrap: wrap; gap: 8px; margin: 14px 0 0; }
.badge { border-radius: 999px; padding: 2px 12px; font-size: 13px; font-weight: 600; }
.good { background: var(--goodish); color: var(--good); }
.bad { background: var(--badish); color: var(--bad); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(158px, 1fr)); gap: 12px; margin-bottom: 16px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px 16px; }
.tile b { display: block; font-size: 23px; line-height: 1.25; font-weight: 620; font-variant-numeric: tabular-nums; }
.tile b small { font-size: 14px; font-weight: 500; color: var(--faint); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 470px), 1fr)); gap: 16px; margin-bottom: 16px; }
.head { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 2px 16px; margin-bottom: 6px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; font-size: 13px; color: var(--faint); }
.legend i { display: inline-block; width: 14px; height: 3px; border-radius: 2px; margin-right: 6px; vertical-align: middle; }
.tables { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 470px), 1fr)); gap: 16px; align-items: start; }
.wide { overflow-x: auto; margin-bottom: 16px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; margin-top: 6px; }
th, td { padding: 5px 12px 5px 0; text-align: left; border-top: 1px solid var(--grid); font-weight: 400; vertical-align: top; }
thead th { color: var(--faint); font-size: 12.5px; border-top: 0; }
td { font-variant-numeric: tabular-nums; }
.number { text-align: right; padding-right: 0; padding-left: 12px; white-space: nowrap; }
.yes { color: var(--good); font-weight: 600; } .no { color: var(--bad); font-weight: 600; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { fill: var(--faint); font-size: 11.5px; font-family: inherit; font-variant-numeric: tabular-nums; }
.grid { stroke: var(--grid); stroke-width: 1; } .axis { stroke: var(--line); stroke-width: 1; }
.plot { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
.below { stroke: none; opacity: 0.10; }
.one { stroke: var(--one); } .two { stroke: var(--two); } .three { stroke: var(--three); }
.one.below, .one.dot { fill: var(--one); } .two.below, .two.dot { fill: var(--two); } .three.below, .three.dot { fill: var(--three); }
.dashed { stroke-dasharray: 5 5; }
footer { margin-top: 20px; }
";
