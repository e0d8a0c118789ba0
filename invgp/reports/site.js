// Tables of one site: latents, data and correlations.
function row(table, cells, heading = false) {
  const made = table.insertRow();
  cells.forEach((text, k) => {
    const cell = document.createElement(heading || k === 0 ? 'th' : 'td');
    cell.scope = heading ? 'col' : 'row';
    if (!heading && k > 0) cell.removeAttribute('scope');
    cell.textContent = text;
    made.appendChild(cell);
  });
  return made;
}

function processName(latent, layer) {
  return layer.label ? `${latent.name}, ${layer.label}` : latent.name;
}

function describePosition(survey, i) {
  return survey.coordinates.map((one) => `${one.name} ${appendUnit(String(Number(one.at(i).toPrecision(8))).replace('-', '\u2212'), one.unit)}`).join(', ');
}

function describeSite(survey, latent, layers, i) {
  const lines = layers.map((layer) => {
    const name = layer.label || latent.name;
    const format = (at) => formatRounded(at(i), layer.std(i));
    const interval = `${format(layer.low)} to ${appendUnit(format(layer.high), latent.unit)}`;
    return `${name}: ${appendUnit(format(layer.mean), latent.unit)} (95%: ${interval}), information ${hundredths(layer.information(i))}`;
  });
  return [`${survey.point} ${survey.number(i)}: ${describePosition(survey, i)}`, ...lines].join('\n');
}

function showSite(survey, i) {
  document.getElementById('site-title').textContent = `${survey.point} ${survey.number(i)}: ${describePosition(survey, i)}`;
  const latents = clear(document.getElementById('site-latents'));
  row(latents, ['Latent', 'Prior', 'Posterior', '95% interval', 'Information', 'Unit'], true);
  for (const latent of survey.latents) {
    for (const layer of latent.layers) {
      const format = (at) => formatRounded(at(i), layer.std(i));
      const [prior, posterior] = [plusMinus(layer.prior(i), layer.priorStd(i)), plusMinus(layer.mean(i), layer.std(i))];
      row(latents, [processName(latent, layer), prior, posterior, `${format(layer.low)} to ${format(layer.high)}`, hundredths(layer.information(i)), latent.unit]);
    }
  }
  document.getElementById('site-data-block').hidden = !survey.observations.length;
  const data = clear(document.getElementById('site-data'));
  row(data, ['Observation', 'Observed ± noise', 'Predicted ± std', 'Residual / noise std', 'Unit'], true);
  for (const observation of survey.observations) {
    for (const layer of observation.layers) {
      const residual = (layer.observed(i) - layer.predicted(i)) / layer.noise(i);
      const observed = Number.isFinite(layer.observed(i)) ? plusMinus(layer.observed(i), layer.noise(i)) : 'missing';
      row(data, [processName(observation, layer), observed, plusMinus(layer.predicted(i), layer.predictedStd(i)), hundredths(residual), observation.unit]);
    }
  }
  showCorrelation(survey, i);
}

function showCorrelation(survey, i) {
  document.getElementById('correlation-block').hidden = !survey.correlation;
  if (!survey.correlation) return;
  const names = survey.latents.flatMap((latent) => latent.layers.map((layer) => processName(latent, layer)));
  const table = clear(document.getElementById('correlation'));
  const size = names.length;
  const start = (i * size * (size - 1)) / 2;
  const colour = palette(survey.palettes.difference);
  row(table, ['', ...names.map((_, k) => String(k + 1))], true);
  names.forEach((name, r) => {
    const values = names.map((_, c) => {
      const [high, low] = [Math.max(r, c), Math.min(r, c)];
      return r === c ? 1 : survey.correlation[start + (high * (high - 1)) / 2 + low] / 100;
    });
    const made = row(table, [`${r + 1}  ${name}`, ...values.map((value) => hundredths(value))]);
    values.forEach((value, c) => {
      const cell = made.cells[c + 1];
      cell.style.backgroundColor = `rgb(${colour((value + 1) / 2).join(',')})`;
      cell.style.color = Math.abs(value) > 0.6 ? '#fff' : '#000';
    });
  });
}
