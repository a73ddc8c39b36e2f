/** The dashboard as a page: Grafana's own components, laid out as Grafana lays out a dashboard. */
import '@fontsource/inter/latin-400.css';
import '@fontsource/inter/latin-500.css';
import {
  createTheme, type DataFrame, type FieldDisplay, getDisplayValueAlignmentFactors, getFieldDisplayValues, type GrafanaTheme2, ThemeContext, type TimeRange,
  VizOrientation,
} from '@grafana/data';
import type { Dashboard, Panel, RowPanel } from '@grafana/schema';
import { BigValue, GlobalStyles, Icon, PanelChrome, RefreshPicker, TimeRangePicker, TimeSeries, ToolbarButton, VizRepeater } from '@grafana/ui';
import { createRoot } from 'react-dom/client';

import file from '../grafana-dashboard.json';
import { framesOf, timeRange } from './frames';

/** Grafana's grid: columns, and pixels. */
const GRID = { columns: 24, row: 30, margin: 8 };
const HEADER = 56;

interface View { range: TimeRange; theme: GrafanaTheme2 }
interface Size { width: number; height: number }

function Series({ panel, frames, size, view }: { panel: Panel; frames: DataFrame[]; size: Size; view: View }) {
  return <TimeSeries frames={frames} {...size} timeRange={view.range} timeZone="utc" legend={panel.options!.legend as any} />;
}

function Stat({ panel, frames, size, view: { theme } }: { panel: Panel; frames: DataFrame[]; size: Size; view: View }) {
  const options = panel.options as any;
  const values = () => getFieldDisplayValues({
    fieldConfig: panel.fieldConfig as any, reduceOptions: options.reduceOptions, replaceVariables: (text) => text, theme, data: frames,
    sparkline: options.graphMode !== 'none', timeZone: 'utc',
  });
  return (
    <VizRepeater<FieldDisplay, any>
      {...size} getValues={values} source={frames} renderCounter={0} autoGrid orientation={VizOrientation.Auto}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      renderValue={({ value, ...rest }) => (
        <BigValue {...options} {...rest} theme={theme} value={value.display} sparkline={value.sparkline} disableWideLayout={!options.wideLayout} />
      )}
    />
  );
}

const DRAW: Record<string, typeof Series> = { timeseries: Series, stat: Stat };

/** What is above the panels: the title, the variables' values, the time. */
function Header({ dashboard, range }: { dashboard: Dashboard; range: TimeRange }) {
  const ignored = () => {};
  return (
    <div style={{ position: 'absolute', inset: `0 0 auto 0`, height: HEADER - GRID.margin, display: 'flex', alignItems: 'center', gap: GRID.margin }}>
      <h3 style={{ margin: 0 }}>{dashboard.title}</h3>
      <div style={{ flexGrow: 1 }} />
      <ToolbarButton variant="canvas">Data source: prometheus</ToolbarButton>
      <ToolbarButton variant="canvas">Device: All</ToolbarButton>
      <TimeRangePicker
        value={range} timeZone="utc" isOnCanvas onChange={ignored} onChangeTimeZone={ignored} onMoveBackward={ignored} onMoveForward={ignored} onZoom={ignored}
      />
      <RefreshPicker value={dashboard.refresh} isOnCanvas onIntervalChanged={ignored} />
    </div>
  );
}

function Page({ dashboard, frames, width, view }: { dashboard: Dashboard; frames: DataFrame[][]; width: number; view: View }) {
  const column = (width + GRID.margin) / GRID.columns;
  const row = GRID.row + GRID.margin;
  return dashboard.panels!.map((panel, at) => {
    const { x, y, w, h } = panel.gridPos!;
    const size = { width: w * column - GRID.margin, height: h * row - GRID.margin };
    const place = { position: 'absolute', left: x * column, top: HEADER + y * row, ...size } as const;
    if (panel.type === 'row') {
      const count = (panel as RowPanel).panels.length;
      return <div key={panel.id} style={place}><Icon name="angle-right" /> {panel.title} <span style={{ opacity: 0.6 }}>({count} panels)</span></div>;
    }
    const Draw = DRAW[panel.type];
    return (
      <div key={panel.id} style={place}>
        <PanelChrome title={panel.title} description={(panel as Panel).description} {...size}>
          {(width: number, height: number) => <Draw panel={panel as Panel} frames={frames[at]} size={{ width, height }} view={view} />}
        </PanelChrome>
      </div>
    );
  });
}

/** Draws the range of time of the address, as `?from=…&to=…` in seconds. The element `html` says which panels are empty, and the height. */
async function main() {
  const dashboard = file as unknown as Dashboard;
  const panels = dashboard.panels as Panel[];
  const search = new URLSearchParams(location.search);
  const view = { range: timeRange(Number(search.get('from')), Number(search.get('to'))), theme: createTheme({ colors: { mode: 'dark' } }) };
  const root = document.getElementById('dashboard')!;
  const width = root.clientWidth;
  // Axes are as wide as their labels.
  await Promise.all([document.fonts.load('12px Inter'), document.fonts.load('500 12px Inter')]);
  const frames = await Promise.all(panels.map((panel) => panel.type === 'row' ? [] : framesOf(panel, view.range, (width * panel.gridPos!.w) / GRID.columns, view.theme)));
  createRoot(root).render(
    <ThemeContext.Provider value={view.theme}>
      <GlobalStyles />
      <Header dashboard={dashboard} range={view.range} />
      <Page {...{ dashboard, frames, width, view }} />
    </ThemeContext.Provider>,
  );
  const bottom = Math.max(...panels.map(({ gridPos }) => gridPos!.y + gridPos!.h));
  Object.assign(document.documentElement.dataset, {
    height: HEADER + bottom * (GRID.row + GRID.margin),
    empty: panels.filter(({ type }, at) => type !== 'row' && frames[at].length === 0).map(({ title }) => title).join(', '),
  });
}

main().catch((error) => { document.documentElement.dataset.error = String(error); });
