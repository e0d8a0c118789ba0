// Numbers: unpack the data of the page, and format them.
function decodeBytes(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

// Return a function from the index of a site to its value, NaN if it is missing.
function unpack(packed, origin = 0) {
  if (packed === null || packed === undefined) return () => NaN;
  if (typeof packed === 'number') return () => packed + origin;
  if (packed.f32) {
    const values = new Float32Array(decodeBytes(packed.f32).buffer);
    return (i) => values[i] + origin;
  }
  // Steps of a range; 65535 marks a missing value.
  const steps = new Uint16Array(decodeBytes(packed.u16).buffer);
  const size = (packed.high - packed.low) / 65534;
  const scaled = (i) => (steps[i] === 65535 ? NaN : packed.low + steps[i] * size);
  return packed.logarithmic ? (i) => Math.exp(scaled(i)) + origin : (i) => scaled(i) + origin;
}

function formatNumber(number) {
  if (!Number.isFinite(number)) return '–';
  const size = Math.abs(number);
  const text = size >= 1e3 && size < 1e7 ? Math.round(number).toLocaleString('en') : String(Number(number.toPrecision(4)));
  return text.replace(/-/g, '\u2212');
}

// Format a number to two digits of its uncertainty: 1142 ± 71.
function uncertaintyDecimals(spread) {
  return spread > 0 && Number.isFinite(spread) ? Math.min(12, Math.max(0, 1 - Math.floor(Math.log10(spread)))) : -1;
}

function formatRounded(number, spread) {
  const decimals = uncertaintyDecimals(spread);
  if (decimals < 0 || !Number.isFinite(number) || Math.abs(number) >= 1e12) return formatNumber(number);
  const digits = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
  return (number + 0).toLocaleString('en', digits).replace(/-/g, '\u2212');
}

function plusMinus(number, spread) {
  return `${formatRounded(number, spread)} ± ${formatRounded(spread, spread)}`;
}

function hundredths(number) {
  return Number.isFinite(number) ? number.toFixed(2).replace('-', '\u2212') : '–';
}

function appendUnit(text, unit) {
  return unit && text !== '–' ? `${text} ${unit}` : text;
}

function extent(count, ...functions) {
  let low = Infinity;
  let high = -Infinity;
  for (const at of functions) {
    for (let i = 0; i < count; i += 1) {
      const value = at(i);
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low <= high ? [low, high] : [0, 1];
}

// Add a margin around values, also if all are equal.
function pad([low, high], share = 0.04) {
  const room = (high - low) * share || Math.abs(low) * 0.05 || 0.5;
  return [low - room, high + room];
}

function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k += 1) found.push(k * step + 0);
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return found.map((value) => {
    const plain = Math.abs(value) < 1e7 && decimals < 7;
    const text = plain ? value.toLocaleString('en', { minimumFractionDigits: decimals, maximumFractionDigits: decimals }) : value.toExponential(1);
    return { value, text: text.replace(/-/g, '\u2212') };
  });
}

function channels(hex) {
  return [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
}

// Return a function from a fraction between 0 and 1 to a colour.
function palette(shades) {
  const colours = shades.map(channels);
  return (share) => {
    const at = Math.min(1, Math.max(0, share)) * (colours.length - 1);
    const first = Math.min(Math.floor(at), colours.length - 2);
    return colours[first].map((value, c) => Math.round(value + (colours[first + 1][c] - value) * (at - first)));
  };
}
