/** Grafana's data frames of a panel: the results of its queries by Prometheus, as Grafana's data source makes them. */
import {
  applyFieldOverrides, createDataFrame, type DataFrame, dateTime, FieldConfigOptionsRegistry, FieldType, type GrafanaTheme2, rangeUtil, type TimeRange,
} from '@grafana/data';
import type { Panel } from '@grafana/schema';

/** What Grafana's data source is told of the scrape interval. */
const SCRAPE_SECONDS = 2;

/** The values of the dashboard's variables: the data source, and all devices. */
const VARIABLES: Record<string, string> = { datasource: 'prometheus', device: '.*' };

interface Series { metric: Record<string, string>; values: [number, string][] }

export function timeRange(from: number, to: number): TimeRange {
  const range = { from: dateTime(from * 1000), to: dateTime(to * 1000) };
  return { ...range, raw: range };
}

/** Runs the queries over the range, with the step and the variables that a panel of this width has in Grafana. */
export async function framesOf(panel: Panel, range: TimeRange, width: number, theme: GrafanaTheme2): Promise<DataFrame[]> {
  const { intervalMs } = rangeUtil.calculateInterval(range, width, `${SCRAPE_SECONDS}s`);
  const step = intervalMs / 1000;
  const variables: Record<string, string> = { ...VARIABLES, __rate_interval: `${Math.max(step + SCRAPE_SECONDS, 4 * SCRAPE_SECONDS)}s` };
  const frames = [];
  for (const target of panel.targets ?? []) {
    const { expr, legendFormat, refId } = target as Record<string, string>;
    const query = expr.replace(/\$(\w+)/g, (whole, name) => variables[name] ?? whole);
    const align = (time: number) => String(Math.floor(time / step) * step);
    const search = new URLSearchParams({ query, step: String(step), start: align(range.from.unix()), end: align(range.to.unix()) });
    const response = await fetch(`/api/v1/query_range?${search}`);
    const { data, error } = await response.json();
    if (error) {
      throw new Error(`${panel.title}: ${error}`);
    }
    for (const { metric, values } of data.result as Series[]) {
      const name = legendFormat.replace(/{{\s*(\w+)\s*}}/g, (_, label) => metric[label] ?? label) || query;
      const numbers = values.map(([, text]) => (Number.isFinite(Number(text)) ? Number(text) : null));
      frames.push(createDataFrame({
        refId,
        fields: [
          { name: 'Time', type: FieldType.time, values: values.map(([time]) => time * 1000), config: { interval: intervalMs } },
          { name: 'Value', type: FieldType.number, values: numbers, labels: metric, config: { displayNameFromDS: name } },
        ],
      }));
    }
  }
  return applyFieldOverrides({
    data: frames, theme, timeZone: 'utc', replaceVariables: (text) => text,
    fieldConfig: panel.fieldConfig as Parameters<typeof applyFieldOverrides>[0]['fieldConfig'], fieldConfigRegistry: registry(panel),
  });
}

/** The properties that the panel sets. Grafana's own registry, which can also edit them, is part of its server. */
function registry({ fieldConfig }: Panel) {
  const { custom = {}, ...defaults } = fieldConfig!.defaults;
  const overrides = fieldConfig!.overrides.flatMap(({ properties }) => properties.map(({ id }) => id));
  const ids = new Set([...Object.keys(defaults), ...Object.keys(custom).map((name) => `custom.${name}`), ...overrides]);
  return new FieldConfigOptionsRegistry(() => [...ids].map((id) => ({
    id, path: id.replace(/^custom\./, ''), isCustom: id.startsWith('custom.'), name: id, settings: {},
    process: (value: unknown) => value, shouldApply: () => true, editor: () => null, override: () => null,
  })));
}
